"""Encoding jobs: the same bytes however often they are stopped, and nothing left out silently."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from PIL import Image

from crg.atomic import locked
from crg.encoders.base import Vectors
from crg.encoding import EncodingProgress, Wording, encode
from crg.engine.ray import encode_on_ray
from crg.features import store
from crg.features.files import read_features
from crg.images.image_set import ImageSet
from crg.images.preprocessing import Pixels
from crg.images.views import Recipe
from encoding_fakes import HashEncoder, contents, dot_files, dots, is_as_in_one_go, run, stop_after
from encoding_fakes import small_blocks as small_blocks
from sentences import check_refused, refused_in_one_sentence

pytestmark = pytest.mark.usefixtures("small_blocks")


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """The folder of a store that does not exist yet."""
    return tmp_path / "s"


@pytest.mark.parametrize("options", [{"workers": 0}, {"workers": 3}, {"batch": 1}, {"batch": 50}])
def test_workers_and_batches_do_not_change_the_bytes(out: Path, options: dict[str, int]) -> None:
    """However the work is cut, the same files come out of an encoder that is exact."""
    first = run(dots(20), out, **options)
    assert (first.n_images, first.n_reused, first.n_views, first.width) == (20, 0, 3, 8)
    assert is_as_in_one_go(out, dots(20))
    again = run(dots(20), out, encoder := HashEncoder(), **options)
    assert (again.n_reused, encoder.encoded, again.sha256) == (20, 0, first.sha256)


@pytest.mark.parametrize("after", [0, 5, 8, 13, 19])
def test_a_stopped_job_continues_where_it_was(out: Path, after: int) -> None:
    """Whole blocks are not encoded again, and the end is as if nothing had happened.

    Progress never goes back, and counts earlier work apart.
    """
    stop_after(after, dots(20), out, batch=3)
    encoder, kept, seen = HashEncoder(), after // 8 * 8, list[EncodingProgress]()
    assert run(dots(20), out, encoder, on_progress=seen.append).n_reused == kept
    assert encoder.encoded == 3 * (20 - kept)
    assert (seen[0], seen[-1]) == (EncodingProgress(kept, kept, 20), EncodingProgress(kept, 20, 20))
    assert [at.done for at in seen] == sorted(at.done for at in seen)
    assert is_as_in_one_go(out, dots(20))


def test_an_unfinished_store_is_neither_read_nor_mixed(out: Path) -> None:
    """Half a store is not read, nor continued with another seed, even without its store.json."""
    stop_after(17, dots(20), out)
    check_refused(("not finished", "run the same crg encode again"), read_features, out)
    words, other = "seed is 0 in the store but 4 was asked for", Recipe(3, seed=4)
    check_refused(words, encode, dots(20), HashEncoder(), other, out)
    (out / store.HEADER).unlink()
    wording, recipe = Wording(cache=None), Recipe(3, seed=1)
    for folder in (out, out.with_name("whole")):
        encode(dots(20), HashEncoder(), recipe, folder, wording=wording)
    assert contents(out) == contents(out.with_name("whole"))


@pytest.mark.parametrize("damage", ["cut", "flipped", "empty", "removed"])
def test_damage_to_an_unfinished_store_costs_only_time(out: Path, damage: str) -> None:
    """A block whose file was damaged is encoded again, and no other."""
    stop_after(17, dots(20), out)
    path = out / store.BLOCKS / "000001.npz"
    content = path.read_bytes()
    flipped = content[:500] + bytes([content[500] ^ 1]) + content[501:]
    path.write_bytes({"cut": content[: len(content) // 3], "flipped": flipped}.get(damage, b""))
    if damage == "removed":
        path.unlink()
    assert run(dots(20), out).n_reused == 8
    assert is_as_in_one_go(out, dots(20))


def test_a_block_is_on_disk_before_it_has_its_name(
    out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a power failure a file of a block is whole, because it was synced before its rename."""
    done: list[str] = []
    rename = os.replace

    def renamed(*names: Path) -> None:
        done.append("rename")
        rename(*names)

    monkeypatch.setattr(os, "fsync", lambda handle: done.append("fsync"))
    monkeypatch.setattr(os, "replace", renamed)
    run(dots(8), out)
    assert done == ["fsync", "rename", "fsync"] * 5  # header, block, images, text, header


@pytest.mark.skipif(sys.platform == "win32", reason="needs fork")
def test_a_job_may_be_killed_at_every_operation_on_the_disk(tmp_path: Path) -> None:
    """Whatever a job was doing to the disk when it was killed, the next one completes it."""
    script = Path(__file__).with_name("killed_encoding.py")
    command = [sys.executable, str(script), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert int(done.stdout) > 50, "too few moments to be all"


def test_repaired_and_replaced_images_are_encoded_again(tmp_path: Path, out: Path) -> None:
    """The block of an image that was unreadable, or has changed, does not count as encoded."""
    stop_after(17, dot_files(tmp_path / "p", 20, bad=[13]), out)
    repaired, encoder = dot_files(tmp_path / "p", 20), HashEncoder()
    assert run(repaired, out, encoder).n_reused == 8
    assert encoder.encoded == 3 * 12
    assert is_as_in_one_go(out, repaired)
    stop_after(17, repaired, out := tmp_path / "t")
    Image.linear_gradient("L").save(tmp_path / "p" / "dot 02.png")
    assert run(repaired, out).n_reused == 8
    shutil.rmtree(tmp_path / "whole")
    assert is_as_in_one_go(out, repaired)


def test_unreadable_images_are_listed_and_close_up(tmp_path: Path, out: Path) -> None:
    """Unreadable images are left out, also after a stop: rows, ids and checksums fit the rest."""
    images = dot_files(tmp_path / "p", 20, bad=[0, 13, 19])
    stop_after(16, images, out)
    summary = run(images, out)
    assert summary.n_reused == 16 and run(images, out).skipped == summary.skipped
    assert [name for name, _ in summary.skipped] == ["dot 00.png", "dot 13.png", "dot 19.png"]
    assert all("dot" in reason for _, reason in summary.skipped)
    assert store.read_header(out).skipped == dict(summary.skipped)
    features = read_features(out)
    assert len(features) == 17 and "dot 13.png" not in features.sample_ids
    run(dot_files(tmp_path / "p", 20), tmp_path / "whole")
    whole = read_features(tmp_path / "whole")
    kept = [whole.sample_ids.index(name) for name in features.sample_ids]
    np.testing.assert_array_equal(features.image_features, whole.image_features[kept])


@pytest.mark.parametrize("files", [0, 1, 3, 6, 7, 8])
def test_a_full_disk_loses_nothing(out: Path, monkeypatch: pytest.MonkeyPatch, files: int) -> None:
    """When no byte fits any more one sentence says so, and with room the job continues."""
    count = 0

    def limited(handle: int) -> None:
        nonlocal count
        count += not stat.S_ISDIR(os.fstat(handle).st_mode)
        if count > files:  # the system says so when a file is synced
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch, refused_in_one_sentence("No space left", "make room"):
        patch.setattr(os, "fsync", limited)
        run(dots(40), out)
    assert run(dots(40), out).n_reused == min(max(files - 1, 0), 5) * 8
    assert is_as_in_one_go(out, dots(40))


def test_a_small_disk_and_a_second_job_are_refused_at_once(
    out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Room and lock are checked before anything is encoded."""
    encoder, disk = HashEncoder(), SimpleNamespace(total=10**9, free=1000)
    with monkeypatch.context() as patch, refused_in_one_sentence("MB more", "make room"):
        patch.setattr("shutil.disk_usage", lambda path: disk)
        run(dots(40), out, encoder)
    with locked(out / store.HEADER), refused_in_one_sentence("written by another process"):
        run(dots(), out, encoder)
    assert encoder.encoded == 0 and run(dots(), out).n_images == 40


def test_other_folders_are_left_alone(tmp_path: Path) -> None:
    """Neither a file nor a folder with something else in it, a store.json too, becomes a store."""
    (tmp_path / "notes.txt").write_text("mine")
    check_refused(("holds something else", "notes.txt"), run, dots(), tmp_path)
    check_refused("is a file", run, dots(), tmp_path / "notes.txt")
    check_refused("cannot be made", run, dots(), tmp_path / "notes.txt" / "store")
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]
    (tmp_path / store.HEADER).write_text('["apples"]')
    check_refused("not a store", run, dots(), tmp_path)
    assert (tmp_path / store.HEADER).read_text() == '["apples"]'


@pytest.mark.parametrize(
    ("view", "value", "words"),
    [(slice(None), np.nan, ["dot 0", "--precision"]), (7, 0, ["dot 2", "--model"])],
)
def test_useless_features_are_refused(out: Path, view: Any, value: float, words: list[str]) -> None:
    """NaN, or a single view of zeros, is reported with the image's name instead of being kept."""

    class Broken(HashEncoder):
        def encode_images(self, pixels: Pixels) -> Vectors:
            features = super().encode_images(pixels)
            features[view] = value
            return features

    check_refused(tuple(words), run, dots(), out, Broken())


def test_odd_settings_are_refused(
    tmp_path: Path, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Impossible settings and empty datasets are reported before anything is written."""
    check_refused("batch is 0", run, dots(), out, batch=0)
    check_refused("workers -1", run, dots(), out, workers=-1)
    check_refused("holds no images", run, ImageSet("none", ("a", "b"), ("{}",), (), ()), out)
    assert not out.exists()
    bad, words = dot_files(tmp_path / "p", 9, range(9)), "dot 00.png is not an image"
    check_refused(("None of the 9 images", words), run, bad, out)
    assert run(dot_files(tmp_path / "p", 9), out).n_reused == 0
    monkeypatch.setitem(sys.modules, "ray", None)
    check_refused(".[ray]", run, dots(), tmp_path / "r", run=encode_on_ray)
