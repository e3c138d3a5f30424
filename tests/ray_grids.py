"""Grids on a real Ray of this machine; prints what came of them as JSON."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import ray
from msgspec.structs import replace

from crg.engine import ray as engine_ray
from crg.engine.processes import run_all
from crg.engine.ray import run_all_on_ray
from crg.results.schema import RunSpec
from deadly_methods import answers, n_struck, save_deadly
from made_experiments import spec
from made_files import save_plugin, save_stream

_TWO = 2  # workers


def grid(place: Path) -> list[RunSpec]:
    """Methods over files and orders; one of the files is missing."""
    paths = [str(save_stream(place / f"{seed}.npz", n=60, seed=seed)) for seed in (0, 1)]
    plugins = (save_deadly(place, times=1),)
    found = [spec(p, m, {}, s) for p in paths for m in ("crg", "deadly") for s in (0, 1)]
    found += [spec(place / "none.npz", "crg"), spec(paths[0], "no_such")]
    return [replace(each, key=str(n), plugins=plugins) for n, each in enumerate(found)]


def killed_in_mid_grid(place: Path, specs: list[RunSpec]) -> dict[str, Any]:
    """On a new cluster, where a worker is killed once."""
    printed: list[int] = []
    there = answers(
        run_all_on_ray(
            specs, _TWO, on_progress=lambda each, done, total: printed.append(int(each.key))
        )
    )
    here = answers(run_all(specs))  # where it has struck already
    return {
        "killed": n_struck(place),
        "the same": here == there,
        "failures": sorted(each for each in there.values() if isinstance(each, str)),
        "reported": sorted(set(printed)),
        "ended": not ray.is_initialized(),
    }


def given_up_and_stopped(place: Path, specs: list[RunSpec]) -> dict[str, Any]:
    """On the user's cluster: a run that always kills its worker, and a grid that is stopped."""
    ray.init(address="local", num_cpus=_TWO, include_dashboard=False, log_to_driver=False)
    path, engine_ray.TRIES = specs[0].data.path, 1
    deadly, slow = (save_deadly(place, times=99),), (str(save_plugin(place)),)
    doomed = [spec(path, method, plugins=deadly) for method in ("deadly", "tda")]
    lost = answers(run_all_on_ray(doomed))
    late = [spec(path, "constant", {"seconds": 60.0}, seed, plugins=slow) for seed in (0, 1)]
    runs = run_all_on_ray([late[0], specs[0], late[1]])
    first = next(runs)[0].method
    runs.close()
    printed = {
        "lost": [each for each in lost.values() if isinstance(each, str)],
        "first": first,
        "left alone": ray.is_initialized(),
        "free again": ray.get(ray.remote(num_cpus=_TWO)(lambda: True).remote(), timeout=60),
    }
    ray.shutdown()
    return printed


def main(place: Path) -> dict[str, Any]:
    """All of it."""
    specs = grid(place)
    return killed_in_mid_grid(place, specs) | given_up_and_stopped(place, specs)


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]))))
