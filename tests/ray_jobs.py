"""Runs and encoding on a real Ray of this machine; prints what came of them as JSON."""

from __future__ import annotations

import functools
import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ray
from msgspec.structs import replace

from crg import InputError
from crg.encoders.base import Encoder, Vectors
from crg.encoding import job as encoding_job
from crg.engine import ray as engine_ray
from crg.engine.ray import encode_on_ray, run_all_on_ray
from crg.engine.worker import attempt
from crg.images.preprocessing import Pixels
from crg.results.schema import RunSpec
from encoding_fakes import HashEncoder, contents, dot_files, run
from made_experiments import answers, n_struck, save_deadly, spec
from made_files import save_plugin, save_stream

_TWO = 2  # workers


class OnceDeadlyEncoder(HashEncoder):
    """Kills the process that it is in, but only the first time."""

    def __init__(self, marker: Path) -> None:
        super().__init__()
        self._marker = marker

    def encode_images(self, pixels: Pixels) -> Vectors:
        if not self._marker.exists():
            self._marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().encode_images(pixels)


def grid(place: Path) -> list[RunSpec]:
    """Methods over files and orders; one of the files is missing."""
    paths = [str(save_stream(place / f"{seed}.npz", n=60, seed=seed)) for seed in (0, 1)]
    plugins = (save_deadly(place, times=1),)
    found = [spec(p, m, {}, s) for p in paths for m in ("crg", "deadly") for s in (0, 1)]
    found += [spec(place / "none.npz", "crg"), spec(paths[0], "no_such")]
    return [replace(each, key=str(n), plugins=plugins) for n, each in enumerate(found)]


def encoded(place: Path, out: str, load: Callable[[], Encoder] | None, bad: int = -1) -> str:
    """Encode 60 images, on Ray if there is ``load``; the complaint, or the images left out."""
    images = dot_files(place / "images", 60, [bad])
    on_ray = functools.partial(encode_on_ray, workers=_TWO, load=load)
    try:
        done = run(images, place / out, workers=_TWO, run=on_ray if load else None)
    except InputError as error:
        return str(error)
    return " ".join(name for name, _ in done.skipped)


def on_a_new_cluster(place: Path, specs: list[RunSpec]) -> dict[str, Any]:
    """A grid and an encoding job, each of which loses a worker once."""
    started: list[int] = []
    runs = run_all_on_ray(specs, _TWO, on_progress=lambda each, *_: started.append(int(each.key)))
    there = answers(runs)
    here = answers((each, attempt(each)) for each in specs)  # where it has struck already
    ended = not ray.is_initialized()
    deadly = functools.partial(OnceDeadlyEncoder, place / "marker")
    return {
        "killed": n_struck(place),
        "the same": here == there,
        "failures": sorted(each for each in there.values() if isinstance(each, str)),
        "started": sorted(started),
        "lost": encoded(place, "lost", deadly),
        "ended": ended and not ray.is_initialized(),
    }


def on_the_users_cluster(place: Path, path: str) -> dict[str, Any]:
    """A run that always kills its worker, a grid that is stopped, other weights, a bad image."""
    ray.init(address="local", num_cpus=_TWO, include_dashboard=False, log_to_driver=False)
    engine_ray.TRIES = 1
    deadly, slow = (save_deadly(place, times=99),), (str(save_plugin(place)),)
    doomed = [spec(path, method, plugins=deadly) for method in ("deadly", "tda")]
    lost = answers(run_all_on_ray(doomed))
    late = [spec(path, "constant", {"seconds": 60.0}, seed, plugins=slow) for seed in (0, 1)]
    runs = run_all_on_ray([late[0], spec(path, "crg"), late[1]])
    first = next(runs)[0].method
    runs.close()
    return {
        "given up": [each for each in lost.values() if isinstance(each, str)],
        "first": first,
        "free again": ray.get(ray.remote(num_cpus=_TWO)(lambda: True).remote(), timeout=60),
        "weights": encoded(place, "other", functools.partial(HashEncoder, "hash", "new")),
        "unreadable": encoded(place, "fewer", HashEncoder, bad=33),
        "corrected": encoded(place, "corrected", HashEncoder),
        "left alone": ray.is_initialized(),
    }


def main(place: Path) -> dict[str, Any]:
    """All of it, and whether the stores have the bytes of the local engine."""
    encoding_job.images_per_block = lambda views: 10
    encoded(place, "local", None)
    specs = grid(place)
    printed = on_a_new_cluster(place, specs) | on_the_users_cluster(place, specs[0].data.path)
    ray.shutdown()
    stores = [contents(place / out) for out in ("local", "lost", "corrected")]
    return printed | {"same bytes": stores[0] == stores[1] == stores[2]}


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]))))
