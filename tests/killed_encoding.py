"""Encoding jobs that end by kill -9, before each single thing they do to the disk.

``python killed_encoding.py FOLDER`` forks a job for each of its operations on the disk, kills it
in the middle of that operation, lets another one go on, and compares every byte.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

from crg.encoders.base import Vectors
from crg.encoding import Wording, encode, job
from crg.images.image_set import ImageSet
from crg.images.preprocessing import Pixels
from crg.images.views import Recipe
from encoding_fakes import HashEncoder, contents, dot_files

_OPERATIONS = ("open", "write", "fsync", "replace", "unlink", "mkdir", "chmod", "close")


class SlowEncoder(HashEncoder):
    """Takes its time, so that it can be caught at work."""

    def encode_images(self, pixels: Pixels) -> Vectors:
        """Unit features (B, D), a little later."""
        time.sleep(0.02)
        return super().encode_images(pixels)


def run_job(images: ImageSet, folder: Path, encoder: HashEncoder) -> None:
    """Encode in blocks of five."""
    with mock.patch.object(job, "images_per_block", lambda views: 5):
        encode(
            *(images, encoder, Recipe(views=2), folder),
            wording=Wording(cache=None),
            batch=4,
            workers=0,
            skip_unreadable=True,
        )


def kill_at(moment: int) -> None:
    """From now on the ``moment``-th operation on the disk is the last thing this process does."""
    count = 0

    def deadly(operation: Callable[..., Any], name: str) -> Callable[..., Any]:
        def until_then(*args: Any, **options: Any) -> Any:
            nonlocal count
            count += 1
            if count == moment:
                if name == "write":
                    operation(args[0], bytes(args[1])[: len(args[1]) // 2])  # a truncated one
                os.kill(os.getpid(), signal.SIGKILL)
            return operation(*args, **options)

        return until_then

    for name in _OPERATIONS:
        setattr(os, name, deadly(getattr(os, name), name))


def in_child(work: Callable[[], None]) -> bool:
    """Whether ``work`` came to its end in a process of its own."""
    child = os.fork()
    if child == 0:
        try:
            work()
        except BaseException:
            sys.excepthook(*sys.exc_info())
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert status in (0, signal.SIGKILL), status
    return status == 0


def kill_at_every_moment(images: ImageSet, place: Path) -> int:
    """How many different moments there were; every resumed store is as if nothing had been."""
    run_job(images, place / "whole", HashEncoder())
    whole = contents(place / "whole")
    for moment in range(1, 10_000):
        folder = place / "killed"
        shutil.rmtree(folder, ignore_errors=True)
        if in_child(lambda m=moment, f=folder: _job_until(m, images, f)):  # type: ignore[misc]
            return moment - 1
        assert in_child(lambda f=folder: run_job(images, f, HashEncoder()))  # type: ignore[misc]
        assert contents(folder) == whole, f"killed at operation {moment}"
    raise AssertionError("the job never ends")


def _job_until(moment: int, images: ImageSet, folder: Path) -> None:
    kill_at(moment)
    run_job(images, folder, HashEncoder())


if __name__ == "__main__":
    os.fsync = lambda fd: None  # what the disk has matters to power failures only
    where, bad = Path(sys.argv[1]), [3, 11] if "bad" in sys.argv else []
    print(kill_at_every_moment(dot_files(where / "images", 13, bad), where))
