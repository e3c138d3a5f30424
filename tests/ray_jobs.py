"""Encoding jobs on a real Ray of this machine; prints what came of them as JSON."""

from __future__ import annotations

import functools
import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import ray

from crg import InputError
from crg.encoders.base import Encoder, Vectors
from crg.encoding import Wording, encode
from crg.encoding import job as encoding_job
from crg.engine.ray import encode_on_ray
from crg.images.preprocessing import Pixels
from crg.images.views import Recipe
from encoding_fakes import HashEncoder, contents, dot_files

_TWO = 2  # actors


class OnceDeadlyEncoder(HashEncoder):
    """Kills the process that it is in, but only the first time."""

    def __init__(self, marker: Path) -> None:
        super().__init__()
        self._marker = marker

    def encode_images(self, pixels: Pixels) -> Vectors:
        """Unit features (B, D)."""
        if not self._marker.exists():
            self._marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().encode_images(pixels)


def job(place: Path, out: str, load: Callable[[], Encoder] | None, bad: int = -1) -> str:
    """Encode 60 images, on Ray if there is ``load``; the complaint, or nothing."""
    images = dot_files(place / "images", 60, [bad])
    on_ray = functools.partial(encode_on_ray, workers=_TWO, load=load)
    try:
        encode(
            *(images, HashEncoder(), Recipe(2), place / out),
            wording=Wording(cache=None),
            workers=_TWO,
            run=on_ray if load else None,
        )
    except InputError as error:
        return str(error)
    return ""


def all_jobs(place: Path) -> dict[str, str | bool]:
    """A job on a new cluster that loses an actor, and others on the user's cluster."""
    job(place, "local", None)
    printed: dict[str, str | bool] = {}
    deadly = functools.partial(OnceDeadlyEncoder, place / "marker")
    printed["lost"] = job(place, "lost", deadly)
    printed["ended"] = not ray.is_initialized()
    ray.init(address="local", num_cpus=_TWO, include_dashboard=False, log_to_driver=False)
    printed["weights"] = job(place, "other", functools.partial(HashEncoder, "hash", "new"))
    printed["unreadable"] = job(place, "corrected", HashEncoder, bad=33)
    printed["corrected"] = job(place, "corrected", HashEncoder)
    printed["left alone"] = ray.is_initialized()
    ray.shutdown()
    same = contents(place / "local")
    return printed | {
        f"{out} is the same": contents(place / out) == same for out in ("lost", "corrected")
    }


if __name__ == "__main__":
    encoding_job.images_per_block = lambda views: 10
    print(json.dumps(all_jobs(Path(sys.argv[1]))))
