"""Encoding jobs that meet unreadable images, full disks, other jobs and odd settings."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from crg import InputError
from crg.encoders.base import Vectors
from crg.encoding import Wording, encode
from crg.engine.ray_encoding import encode_on_ray
from crg.features import store
from crg.features.files import read_features
from crg.images.image_set import ImageSet
from crg.images.preprocessing import Pixels
from crg.images.views import Recipe
from encoding_fakes import HashEncoder, StoppedAfter, contents, dot_files, dots, run, small_blocks
from sentences import refused_in_one_sentence

__all__ = ["small_blocks"]  # a fixture
pytestmark = pytest.mark.usefixtures("small_blocks")


def test_the_first_unreadable_image_ends_the_job(tmp_path: Path) -> None:
    """The sentence names the image and the way out; whole blocks before it are kept."""
    images = dot_files(tmp_path / "p", 20, bad=[13, 17])
    words = ("dot 13.png", "--skip-unreadable", "8 of 20 images are kept")
    with refused_in_one_sentence(*words):
        run(images, tmp_path / "s")


def test_a_repaired_image_continues(tmp_path: Path) -> None:
    """After the file was replaced only what was missing is encoded, and all is as it should be."""
    with pytest.raises(InputError):
        run(dot_files(tmp_path / "p", 20, bad=[13]), tmp_path / "s")
    repaired, encoder = dot_files(tmp_path / "p", 20), HashEncoder()
    assert run(repaired, tmp_path / "s", encoder).n_reused == 8
    assert encoder.encoded == 3 * 12
    run(repaired, tmp_path / "whole")
    assert contents(tmp_path / "s") == contents(tmp_path / "whole")


def test_a_replaced_image_is_encoded_again(tmp_path: Path) -> None:
    """Blocks with images that changed since they were encoded do not count."""
    images = dot_files(tmp_path / "p", 20)
    with pytest.raises(KeyboardInterrupt):
        run(images, tmp_path / "s", StoppedAfter(17))
    other = tmp_path / "p" / "dot 02.png"
    with_noise = np.random.default_rng(0).integers(0, 255, (30, 30, 3), np.uint8)
    Image.fromarray(with_noise).save(other)
    assert run(images, tmp_path / "s").n_reused == 8
    run(images, tmp_path / "whole")
    assert contents(tmp_path / "s") == contents(tmp_path / "whole")


def test_skipped_images_are_listed_and_close_up(tmp_path: Path) -> None:
    """On request unreadable images are left out: rows, ids and checksums fit the rest."""
    images = dot_files(tmp_path / "p", 20, bad=[0, 13, 19])
    summary = run(images, tmp_path / "s", skip_unreadable=True)
    assert [name for name, _ in summary.skipped] == ["dot 00.png", "dot 13.png", "dot 19.png"]
    assert all("dot" in reason for _, reason in summary.skipped)
    assert store.read_header(tmp_path / "s").skipped == dict(summary.skipped)
    features = read_features(tmp_path / "s")
    assert len(features) == 17 and "dot 13.png" not in features.sample_ids
    run(dot_files(tmp_path / "p", 20), tmp_path / "whole")
    whole = read_features(tmp_path / "whole")
    kept = [whole.sample_ids.index(name) for name in features.sample_ids]
    np.testing.assert_array_equal(features.image_features, whole.image_features[kept])


def test_a_store_that_lacks_images_is_not_taken_for_whole(tmp_path: Path) -> None:
    """Without --skip-unreadable a store with images left out is refused."""
    images = dot_files(tmp_path / "p", 20, bad=[13])
    run(images, tmp_path / "s", skip_unreadable=True)
    with refused_in_one_sentence("could not be read (1)", "--skip-unreadable"):
        run(images, tmp_path / "s")


def test_a_job_continues_with_skipping(tmp_path: Path) -> None:
    """Who was stopped by an unreadable image may go on without it."""
    images = dot_files(tmp_path / "p", 20, bad=[13])
    with pytest.raises(InputError):
        run(images, tmp_path / "s")
    assert run(images, tmp_path / "s", skip_unreadable=True).n_reused == 8
    run(images, tmp_path / "whole", skip_unreadable=True)
    assert contents(tmp_path / "s") == contents(tmp_path / "whole")


def test_a_set_without_a_readable_image_is_refused(tmp_path: Path) -> None:
    """Skipping everything leaves no store."""
    images = dot_files(tmp_path / "p", 9, bad=range(9))
    with refused_in_one_sentence("None of the 9 images"):
        run(images, tmp_path / "s", skip_unreadable=True)


@pytest.mark.parametrize("files", [0, 1, 3, 6, 7, 8])
def test_a_full_disk_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: int
) -> None:
    """When no byte fits any more one sentence says so, and with room the job continues."""
    with _full_after(monkeypatch, files), refused_in_one_sentence("No space left", "make room"):
        run(dots(40), tmp_path / "s")
    assert run(dots(40), tmp_path / "s").n_reused == min(max(files - 1, 0), 5) * 8
    run(dots(40), tmp_path / "whole")
    assert contents(tmp_path / "s") == contents(tmp_path / "whole")


def test_a_disk_that_is_too_small_is_told_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody waits for hours to learn that the numbers do not fit."""
    monkeypatch.setattr("shutil.disk_usage", lambda path: _Disk())
    encoder = HashEncoder()
    with refused_in_one_sentence("MB more", "make room"):
        run(dots(40), tmp_path / "s", encoder)
    assert encoder.encoded == 0


def test_two_jobs_do_not_write_to_one_store(tmp_path: Path) -> None:
    """A second process is refused while the first one lives, and not once it was killed."""
    code = (
        "import sys, time; from crg.atomic import locked\n"
        "with locked(sys.argv[1]): print('held', flush=True); time.sleep(60)"
    )
    command = [sys.executable, "-c", code, str(tmp_path / store.HEADER)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None and holder.stdout.readline() == "held\n"
        with refused_in_one_sentence("is being written by another process"):
            run(dots(), tmp_path)
        holder.kill()
    assert run(dots(), tmp_path).n_images == 40


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


def test_useless_features_are_refused(tmp_path: Path) -> None:
    """NaN from the model is reported with the image's name instead of being kept."""

    class Broken(HashEncoder):
        def encode_images(self, pixels: Pixels) -> Vectors:
            return super().encode_images(pixels) * np.float32("nan")

    with refused_in_one_sentence("dot 0", "--precision"):
        run(dots(), tmp_path / "s", Broken())


def test_one_useless_view_is_enough(tmp_path: Path) -> None:
    """A single view of zeros is noticed as well."""

    class Dark(HashEncoder):
        def encode_images(self, pixels: Pixels) -> Vectors:
            features = super().encode_images(pixels)
            features[7] = 0
            return features

    with refused_in_one_sentence("dot 2", "--model"):
        run(dots(), tmp_path / "s", Dark())


def test_ray_is_named_where_it_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without Ray installed the sentence names the extra."""
    monkeypatch.setitem(sys.modules, "ray", None)
    with refused_in_one_sentence(".[ray]"):
        run(dots(), tmp_path / "s", run=encode_on_ray)


def test_blocks_without_their_header_do_not_count(tmp_path: Path) -> None:
    """After store.json was deleted, a job with another seed uses features of that seed alone."""
    with pytest.raises(KeyboardInterrupt):
        run(dots(20), tmp_path / "s", StoppedAfter(17))
    (tmp_path / "s" / store.HEADER).unlink()
    wording, recipe = Wording(cache=None), Recipe(3, seed=1)
    encode(dots(20), HashEncoder(), recipe, tmp_path / "s", wording=wording)
    encode(dots(20), HashEncoder(), recipe, tmp_path / "whole", wording=wording)
    assert contents(tmp_path / "s") == contents(tmp_path / "whole")


@pytest.mark.parametrize("options", [{"batch": 0}, {"workers": -1}])
def test_odd_settings_are_refused(tmp_path: Path, options: dict[str, Any]) -> None:
    """Settings that make no sense are reported before anything is written."""
    with refused_in_one_sentence():
        run(dots(), tmp_path / "s", **options)
    with refused_in_one_sentence("holds no images"):
        run(ImageSet("none", ("a", "b"), ("{}",), (), ()), tmp_path / "s")
    assert not (tmp_path / "s").exists()


class _Disk:
    total, free = 10**9, 1000


@contextlib.contextmanager
def _full_after(monkeypatch: pytest.MonkeyPatch, files: int) -> Iterator[None]:
    """The disk is full after so many files, as the system says when one is synced."""
    count = 0

    def limited(handle: int) -> None:
        nonlocal count
        count += not stat.S_ISDIR(os.fstat(handle).st_mode)
        if count > files:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", limited)
        yield
