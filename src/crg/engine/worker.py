"""One run: its feature files, read once, its result or failure, and its peak memory."""

from __future__ import annotations

import contextlib
import functools
import os
import pickle
import re
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Generator, Sequence
from pathlib import Path

from msgspec.structs import replace

from crg.features.files import Features, read_features
from crg.features.joining import joined, with_few
from crg.plugins import load_plugin
from crg.results.provenance import failed_run
from crg.results.schema import Failure, Result, RunSpec
from crg.threads import ONE_THREAD, one_torch_thread
from crg.types import InputError, Step

Outcome = Result | Failure
OnProgress = Callable[[RunSpec, int, int], None]  # images done and in all; (0, 0) at the start
Report = Callable[[int, int], None]  # the same, from inside the run


def results_only(
    outcomes: Generator[tuple[RunSpec, Outcome], None, None],
) -> Generator[tuple[RunSpec, Result], None, None]:
    """The results of runs; the first failure ends them all and is raised."""
    with contextlib.closing(outcomes):
        for spec, outcome in outcomes:
            if isinstance(outcome, Result):
                yield spec, outcome
            elif outcome.trace:
                raise RuntimeError(f"A run of {spec.method} failed:\n{outcome.trace}")
            else:
                raise InputError(outcome.reason)


_Version = tuple[str, int, int]  # path, time of the last change, size


def read_once(path: str, then: Sequence[str] = ()) -> Features:
    """The features of a file joined with those of ``then``; read again if a file has changed."""
    return _read_versions(tuple(_version(each) for each in (path, *then)))


def read_with_few(path: str, few: str | None, then: Sequence[str] = ()) -> Features:
    """The features of a stream, with labelled images from another file if one is named."""
    features = read_once(path, then)
    return features if few is None else with_few(features, read_once(few))


def forget_files() -> None:
    """Free the memory of the files that were read."""
    _read_versions.cache_clear()


def _version(path: str) -> _Version:
    try:
        status = os.stat(path)
    except OSError:
        return path, 0, 0  # reading it will say what is wrong
    return path, status.st_mtime_ns, status.st_size


@functools.lru_cache(maxsize=2)
def _read_versions(versions: tuple[_Version, ...]) -> Features:
    parts = [read_features(path) for path, _, _ in versions]
    return parts[0] if len(parts) == 1 else joined(parts)


_PAUSE = 0.25  # seconds between two reports of one run


def run_spec(
    spec: RunSpec,
    report: Report = lambda done, total: None,
    on_step: Callable[[Step], None] = lambda step: None,
) -> Result:
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
        on_step(step)
        if time.monotonic() - last >= _PAUSE:
            last = time.monotonic()
            report(step.index + 1, total)

    given = (features, spec.method, spec.given, spec.seed)
    with one_torch_thread():
        result = run(*given, scenario=spec.scenario, on_step=count)
    if not spec.memory:
        return result
    return replace(result, metrics={**result.metrics, "peak_bytes": peak_bytes(spec)})


def attempt(spec: RunSpec, report: Report) -> Outcome:
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
_CHILD = (
    "import pickle, sys; sys.path[:] = pickle.load(sys.stdin.buffer);"
    "from crg.engine.worker import measure; measure()"
)


def peak_bytes(spec: RunSpec) -> int | None:
    """Peak memory of a fresh process over the first images of a run.

    A process that has done other runs, or that inherits from a large parent, would count theirs
    too. Python, the libraries and a feature file that is not memory-mapped are included. None if
    the system does not report it or the process failed.
    """
    if not _STATUS.exists():
        return None
    process = subprocess.Popen(
        [sys.executable, "-c", _CHILD],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, **ONE_THREAD},
    )
    with process:
        assert process.stdin is not None and process.stdout is not None
        try:
            with contextlib.suppress(BrokenPipeError):
                process.stdin.write(pickle.dumps(sys.path) + pickle.dumps(spec))
                process.stdin.flush()  # and left open: the child ends when it closes
            printed = process.stdout.read().split()
        finally:
            process.kill()  # it is done, or the run was interrupted
    return int(printed[-1]) if printed and printed[-1].isdigit() else None


class _EnoughError(Exception):
    """Enough images were seen."""


def measure() -> None:
    """Run the spec from stdin over the first images and print the peak: the child's main."""
    spec = replace(pickle.load(sys.stdin.buffer), memory=False)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    with contextlib.suppress(_EnoughError):
        run_spec(spec, on_step=_stop)
    # not from getrusage, which hands the peak of the parent down to the child
    peak = re.search(r"VmHWM:\s*(\d+) kB", _STATUS.read_text())
    print("" if peak is None else f"\n{1024 * int(peak[1])}", flush=True)


def _stop(step: Step) -> None:
    if step.index + 1 >= N_IMAGES:
        raise _EnoughError


def _end_with_parent() -> None:
    os.read(0, 1)  # returns only when the parent's end of the pipe closes
    os._exit(1)
