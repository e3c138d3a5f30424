"""One run: what it is given, its feature files, read once, what comes of it, and its peak memory.

Memory is measured in a fresh process: one that has done other runs, or has a large parent, would
count theirs too.
"""

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
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from crg.features.files import Features, read_features
from crg.features.joining import joined, with_few
from crg.plugins import load_plugins
from crg.streams import Scenario
from crg.threads import ONE_THREAD, one_torch_thread
from crg.types import InputError, Result, Step


@dataclass(frozen=True)
class RunSpec:
    """One run: a method with its options on one file in one stream order."""

    path: str
    method: str
    options: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0
    few: str | None = None  # a file or store of labelled images
    then: tuple[str, ...] = ()  # files whose images come after those of ``path``
    scenario: Scenario = field(default_factory=Scenario)
    measure_memory: bool = False  # in a process of its own, over the first images
    key: str = ""  # what the run is found by among results; the engine hands it back


@dataclass(frozen=True)
class Failure:
    """Why a run failed: a sentence, and the traceback where it was no bad input."""

    reason: str
    trace: str = ""


Outcome = Result | Failure

# A run, how many of its images are done, and how many it has: (0, 0) when it begins.
OnProgress = Callable[[RunSpec, int, int], None]

# How far a run is, as the run itself reports it.
Tell = Callable[[int, int], None]


def results_only(
    outcomes: Generator[tuple[RunSpec, Outcome], None, None],
) -> Generator[tuple[RunSpec, Result], None, None]:
    """The results of runs; the first one that failed ends them all and is raised."""
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
    """The features of a file, with those of the files ``then``, read again if one has changed."""
    return _read_versions(tuple(_version(each) for each in (path, *then)))


def read_with_few(path: str, few: str | None, then: Sequence[str] = ()) -> Features:
    """The features of a file, with labelled images from another one if it is named."""
    features = read_once(path, then)
    return features if few is None else with_few(features, read_once(few))


def forget_files() -> None:
    """Give back the memory of the files that were read."""
    _read_versions.cache_clear()


def _version(path: str) -> _Version:
    try:
        status = os.stat(path)
    except OSError:
        return path, 0, 0  # what is wrong is reported when it is read
    return path, status.st_mtime_ns, status.st_size


@functools.lru_cache(maxsize=2)
def _read_versions(versions: tuple[_Version, ...]) -> Features:
    parts = [read_features(path) for path, _, _ in versions]
    return parts[0] if len(parts) == 1 else joined(parts)


N_IMAGES = 64
_STATUS = Path("/proc/self/status")
_CHILD = (
    "import pickle, sys; sys.path[:] = pickle.load(sys.stdin.buffer);"
    "from crg.engine.worker import measure; measure()"
)


def peak_bytes(spec: RunSpec, plugins: Sequence[str] = ()) -> int | None:
    """Bytes that a process of its own needs at most for the first images of a run.

    They include Python and the libraries, and a feature file that is not mapped. None where
    the system does not tell, or where the process failed.
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
                process.stdin.write(pickle.dumps(sys.path) + pickle.dumps((spec, tuple(plugins))))
                process.stdin.flush()  # and left open: its end tells the child that we are gone
            told = process.stdout.read().split()
        finally:
            process.kill()  # it is done, or nobody waits for it any more
    return int(told[-1]) if told and told[-1].isdigit() else None


def measure() -> None:
    """Life of the child: run what stdin holds and print the peak."""
    from crg.evaluate import run

    spec, plugins = pickle.load(sys.stdin.buffer)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    load_plugins(plugins)
    features = read_with_few(spec.path, spec.few, spec.then)
    given = (features, spec.method, spec.options, spec.seed)
    with contextlib.suppress(_EnoughError):
        run(*given, scenario=spec.scenario, on_step=_stop)
    # not from getrusage, which hands the peak of the parent down to the child
    peak = re.search(r"VmHWM:\s*(\d+) kB", _STATUS.read_text())
    print("" if peak is None else f"\n{1024 * int(peak[1])}", flush=True)


class _EnoughError(Exception):
    """Enough images were seen."""


def _stop(step: Step) -> None:
    if step.index + 1 >= N_IMAGES:
        raise _EnoughError


def _end_with_parent() -> None:
    os.read(0, 1)  # nothing comes but the end
    os._exit(1)


_PAUSE = 0.25  # seconds between two reports of one run


def run_spec(
    spec: RunSpec, plugins: Sequence[str] = (), tell: Tell = lambda done, total: None
) -> Result:
    """Run one spec in this process with one computing thread; ``tell`` hears how far it is."""
    from crg.evaluate import run  # by whoever runs something, and not by whoever only plans

    tell(0, 0)
    load_plugins(plugins)
    features = read_with_few(spec.path, spec.few, spec.then)
    counter = _Counter(tell, min(len(features), spec.scenario.images or len(features)))
    given = (features, spec.method, spec.options, spec.seed)
    with one_torch_thread():
        result = run(*given, scenario=spec.scenario, on_step=counter)
    if not spec.measure_memory:
        return result
    return replace(result, metrics={**result.metrics, "peak_bytes": peak_bytes(spec, plugins)})


def attempt(spec: RunSpec, plugins: Sequence[str], tell: Tell) -> Outcome:
    """The result of one spec, or why there is none; only Ctrl-C gets through."""
    try:
        return run_spec(spec, plugins, tell)
    except InputError as error:
        return Failure(str(error))
    except (Exception, SystemExit) as error:
        reason = f"{type(error).__name__}: {error}".splitlines()[0].rstrip(": ")
        return Failure(reason, traceback.format_exc())


class _Counter:
    """Counts steps, and tells now and then."""

    def __init__(self, tell: Tell, total: int) -> None:
        self._tell, self._total, self._done = tell, total, 0
        self._told = time.monotonic()
        tell(0, total)

    def __call__(self, step: Step) -> None:
        self._done += 1
        now = time.monotonic()
        if now - self._told >= _PAUSE:
            self._told = now
            self._tell(self._done, self._total)
