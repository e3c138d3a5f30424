"""Encoding jobs: the same bytes however often they are stopped, and nothing left out silently."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
from collections.abc import Callable
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
from encoding_fakes import (
    HashEncoder,
    contents,
    dot_files,
    dots,
    is_as_in_one_go,
    run,
    small_blocks,
    stop_after,
)
from sentences import refused_in_one_sentence

__all__ = ["small_blocks"]  # a fixture
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
    """Half a store is refused with the remedy, and so is continuing with another seed."""
    stop_after(9, dots(20), out)
    with refused_in_one_sentence("not finished", "run the same crg encode again"):
        read_features(out)
    with refused_in_one_sentence("seed is 0 in the store but 4 was asked for"):
        encode(dots(20), HashEncoder(), Recipe(3, seed=4), out)


def test_blocks_without_their_header_do_not_count(out: Path) -> None:
    """After store.json was deleted, a job with another seed uses features of that seed alone."""
    stop_after(17, dots(20), out)
    (out / store.HEADER).unlink()
    wording, recipe = Wording(cache=None), Recipe(3, seed=1)
    for folder in (out, out.with_name("whole")):
        encode(dots(20), HashEncoder(), recipe, folder, wording=wording)
    assert contents(out) == contents(out.with_name("whole"))


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: content[: len(content) // 3],
        lambda content: content[:500] + bytes([content[500] ^ 1]) + content[501:],
        lambda content: b"",
        None,
    ],
    ids=["cut", "flipped", "empty", "removed"],
)
def test_damage_to_an_unfinished_store_costs_only_time(
    out: Path, damage: Callable[[bytes], bytes] | None
) -> None:
    """A block whose file was damaged is encoded again, and no other."""
    stop_after(17, dots(20), out)
    path = out / store.BLOCKS / "000001.npz"
    content = path.read_bytes()
    path.unlink()
    if damage:
        path.write_bytes(damage(content))
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


def test_an_unreadable_image_ends_the_job_until_it_is_repaired(tmp_path: Path, out: Path) -> None:
    """The sentence names the image and the remedy; then only the missing blocks are encoded."""
    with refused_in_one_sentence("dot 13.png", "--skip-unreadable", "8 of 20 images are kept"):
        run(dot_files(tmp_path / "p", 20, bad=[13, 17]), out)
    repaired, encoder = dot_files(tmp_path / "p", 20), HashEncoder()
    assert run(repaired, out, encoder).n_reused == 8
    assert encoder.encoded == 3 * 12
    assert is_as_in_one_go(out, repaired)


def test_a_replaced_image_is_encoded_again(tmp_path: Path, out: Path) -> None:
    """Blocks with images that changed since they were encoded do not count."""
    images = dot_files(tmp_path / "p", 20)
    stop_after(17, images, out)
    Image.linear_gradient("L").save(tmp_path / "p" / "dot 02.png")
    assert run(images, out).n_reused == 8
    assert is_as_in_one_go(out, images)


def test_skipped_images_are_listed_and_close_up(tmp_path: Path, out: Path) -> None:
    """On request unreadable images are left out: rows, ids and checksums fit the rest."""
    images = dot_files(tmp_path / "p", 20, bad=[0, 13, 19])
    summary = run(images, out, skip_unreadable=True)
    assert [name for name, _ in summary.skipped] == ["dot 00.png", "dot 13.png", "dot 19.png"]
    assert all("dot" in reason for _, reason in summary.skipped)
    assert store.read_header(out).skipped == dict(summary.skipped)
    features = read_features(out)
    assert len(features) == 17 and "dot 13.png" not in features.sample_ids
    run(dot_files(tmp_path / "p", 20), tmp_path / "whole")
    whole = read_features(tmp_path / "whole")
    kept = [whole.sample_ids.index(name) for name in features.sample_ids]
    np.testing.assert_array_equal(features.image_features, whole.image_features[kept])


def test_skipping_continues_a_job_but_is_never_silent(tmp_path: Path, out: Path) -> None:
    """A job that an image ended continues without it; later only --skip-unreadable accepts that."""
    images = dot_files(tmp_path / "p", 20, bad=[13])
    stop_after(16, images, out, skip_unreadable=True)
    with refused_in_one_sentence("dot 13.png", "8 of 20 images are kept"):
        run(images, out)
    assert run(images, out, skip_unreadable=True).n_reused == 16
    assert is_as_in_one_go(out, images, skip_unreadable=True)
    with refused_in_one_sentence("could not be read (1)", "--skip-unreadable"):
        run(images, out)


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


def test_a_disk_that_is_too_small_is_refused_at_once(
    out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The space is checked before anything is encoded."""
    disk = SimpleNamespace(total=10**9, free=1000)
    monkeypatch.setattr("shutil.disk_usage", lambda path: disk)
    encoder = HashEncoder()
    with refused_in_one_sentence("MB more", "make room"):
        run(dots(40), out, encoder)
    assert encoder.encoded == 0


def test_two_jobs_do_not_write_to_one_store(out: Path) -> None:
    """A second job is refused while the first one runs."""
    out.mkdir()
    with locked(out / store.HEADER), refused_in_one_sentence("written by another process"):
        run(dots(), out)
    assert run(dots(), out).n_images == 40


def test_other_folders_are_left_alone(tmp_path: Path) -> None:
    """Neither a file nor a folder with something else in it becomes a store."""
    (tmp_path / "notes.txt").write_text("mine")
    with refused_in_one_sentence("holds something else", "notes.txt"):
        run(dots(), tmp_path)
    with refused_in_one_sentence("is a file"):
        run(dots(), tmp_path / "notes.txt")
    with refused_in_one_sentence("cannot be made"):
        run(dots(), tmp_path / "notes.txt" / "store")
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


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

    with refused_in_one_sentence(*words):
        run(dots(), out, Broken())


def test_odd_settings_are_refused(
    tmp_path: Path, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Impossible settings and empty datasets are reported before anything is written."""
    with refused_in_one_sentence("batch is 0"):
        run(dots(), out, batch=0)
    with refused_in_one_sentence("workers -1"):
        run(dots(), out, workers=-1)
    with refused_in_one_sentence("holds no images"):
        run(ImageSet("none", ("a", "b"), ("{}",), (), ()), out)
    assert not out.exists()
    with refused_in_one_sentence("None of the 9 images"):
        run(dot_files(tmp_path / "p", 9, bad=range(9)), out, skip_unreadable=True)
    monkeypatch.setitem(sys.modules, "ray", None)
    with refused_in_one_sentence(".[ray]"):
        run(dots(), tmp_path / "r", run=encode_on_ray)
