"""One run: its feature files, read once, its result or failure, and its peak memory."""

from __future__ import annotations

import contextlib
import functools
import multiprocessing
import os
import re
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from msgspec.structs import replace

from crg.features.files import Features, read_features
from crg.features.joining import joined, with_few
from crg.plugins import load_plugin
from crg.results.provenance import failed_run
from crg.results.schema import Failure, Result, RunSpec
from crg.threads import ONE_THREAD, environment, one_torch_thread
from crg.types import InputError, Step

Outcome = Result | Failure
OnProgress = Callable[[RunSpec, int, int], None]  # images done and in all; (0, 0) at the start
Report = Callable[[int, int], None]  # the same, from inside the run


def read_once(path: str, then: Sequence[str] = ()) -> Features:
    """The features of a file joined with those of ``then``; read again if a file has changed."""
    states = [os.stat(each) if os.path.exists(each) else None for each in (path, *then)]
    return _read((path, *then), tuple(each and (each.st_mtime_ns, each.st_size) for each in states))


def read_with_few(path: str, few: str | None, then: Sequence[str] = ()) -> Features:
    """The features of a stream, with labelled images from another file if one is named."""
    features = read_once(path, then)
    return features if few is None else with_few(features, read_once(few))


def forget_files() -> None:
    """Free the memory of the files that were read."""
    _read.cache_clear()


@functools.lru_cache(maxsize=2)
def _read(paths: tuple[str, ...], versions: tuple[tuple[int, int] | None, ...]) -> Features:
    parts = [read_features(path) for path in paths]
    return parts[0] if len(parts) == 1 else joined(parts)


_PAUSE = 0.25  # seconds between two reports of one run


def run_spec(spec: RunSpec, report: Report = lambda done, total: None) -> Result:
    """Run one spec in this process with one computing thread."""
    from crg.evaluate import run  # only where something is run, not where it is planned

    report(0, 0)
    for plugin in spec.plugins:
        load_plugin(plugin)
    few = None if spec.few is None else spec.few.path
    features = read_with_few(spec.data.path, few, spec.then)
    total = min(len(features), spec.scenario.images or len(features))
    report(0, total)
    last = time.monotonic()

    def count(step: Step) -> None:
        nonlocal last
        if time.monotonic() - last >= _PAUSE:
            last = time.monotonic()
            report(step.index + 1, total)

    with one_torch_thread():
        result = run(
            *(features, spec.method, spec.given, spec.seed), scenario=spec.scenario, on_step=count
        )
    if not spec.memory:
        return result
    return replace(result, metrics={**result.metrics, "peak_bytes": peak_bytes(spec)})


def attempt(spec: RunSpec, report: Report = lambda done, total: None) -> Outcome:
    """The result of one spec, or why there is none; only Ctrl-C gets through."""
    try:
        return run_spec(spec, report)
    except InputError as error:
        return failed_run(spec.key, str(error))
    except (Exception, SystemExit) as error:
        reason = f"{type(error).__name__}: {error}".splitlines()[0].rstrip(": ")
        return failed_run(spec.key, reason, traceback.format_exc())


N_IMAGES = 64  # over which memory is measured
_STATUS = Path("/proc/self/status")


def peak_bytes(spec: RunSpec) -> int | None:
    """Peak memory of a fresh process over a run of a few images.

    A process that has done other runs, or that inherits from a large parent, would count theirs
    too. Python, the libraries and a feature file that is not memory-mapped are included. None if
    the system does not report it or the process failed.
    """
    fresh = ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), end_with_parent)
    with environment(ONE_THREAD), fresh as pool, contextlib.suppress(Exception):
        return pool.submit(_measure, spec).result()
    return None


def _measure(spec: RunSpec) -> int | None:
    few = replace(spec.scenario, images=min(N_IMAGES, spec.scenario.images or N_IMAGES))
    run_spec(replace(spec, memory=False, scenario=few))
    # not from getrusage, which hands the peak of the parent down to the child
    peak = re.search(r"VmHWM:\s*(\d+) kB", _STATUS.read_text())
    return None if peak is None else 1024 * int(peak[1])


def end_with_parent() -> None:
    """End this process as soon as the one that started it is gone: the initialiser of workers."""

    def wait() -> None:
        if parent := multiprocessing.parent_process():
            parent.join()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()
