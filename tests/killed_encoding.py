"""Encoding jobs that end by kill -9, before each single thing they do to the disk.

``python killed_encoding.py FOLDER`` forks a job for each of its operations on the disk, kills it
in the middle of that operation, lets another one continue, and compares every byte. Some of the
images are unreadable and left out.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

from crg.encoding import job
from crg.images.image_set import ImageSet
from encoding_fakes import contents, dot_files, run

_OPERATIONS = ("open", "write", "fsync", "replace", "unlink", "mkdir", "chmod", "close")


def run_job(images: ImageSet, folder: Path) -> None:
    """Encode in blocks of five."""
    with mock.patch.object(job, "images_per_block", lambda views: 5):
        run(images, folder, batch=4, workers=0)


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


def survives(moment: int, images: ImageSet, folder: Path) -> bool:
    """Whether a job in another process ends before the ``moment``-th operation kills it."""
    child = os.fork()
    if child == 0:
        try:
            kill_at(moment)
            run_job(images, folder)
        except BaseException:
            sys.excepthook(*sys.exc_info())
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert status in (0, signal.SIGKILL), status
    return status == 0


def kill_at_every_moment(images: ImageSet, place: Path) -> int:
    """How many different moments there were; every resumed store is as if nothing had been."""
    run_job(images, place / "whole")
    whole, folder = contents(place / "whole"), place / "killed"
    for moment in range(1, 10_000):
        shutil.rmtree(folder, ignore_errors=True)
        if survives(moment, images, folder):
            return moment - 1
        run_job(images, folder)
        assert contents(folder) == whole, f"killed at operation {moment}"
    raise AssertionError("the job never ends")


if __name__ == "__main__":
    os.fsync = lambda fd: None  # what the disk has matters to power failures only
    where = Path(sys.argv[1])
    print(kill_at_every_moment(dot_files(where / "images", 13, bad=[3, 11]), where))
