"""Engine: runs that do not depend on each other, here or in several processes."""

from __future__ import annotations

import contextlib
import functools
import multiprocessing
import multiprocessing.connection
import os
import signal
import sys
import traceback
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing import resource_tracker
from typing import Any

from crg.evaluate import run
from crg.features import Features, read_features
from crg.labelled import with_few
from crg.plugins import load_plugins
from crg.types import InputError, Result

_THREAD_COUNTS = (
    "OPENBLAS_NUM_THREADS",
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMBA_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
)


@dataclass(frozen=True)
class RunSpec:
    """One run: a method with its options on one file in one stream order."""

    path: str
    method: str
    options: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0
    few: str | None = None  # a file or store of labelled pictures


def run_spec(spec: RunSpec) -> Result:
    """Run one spec in this process."""
    return run(read_with_few(spec.path, spec.few), spec.method, spec.options, spec.seed)


def run_all(
    specs: Sequence[RunSpec], workers: int = 1, plugins: Sequence[str] = ()
) -> Generator[tuple[RunSpec, Result], None, None]:
    """Run all specs and yield each with its result as soon as it is done.

    With one worker everything happens in this process, in the given order. With more, each
    worker is a process of its own with one computing thread that loads ``plugins`` first and
    reads each file once. To stop early, close the iterator: the workers end at once.
    """
    count = min(workers, len(specs))
    if count > 1:
        forget_files()  # the workers need the memory
        yield from _run_in_processes(specs, count, tuple(plugins))
        return
    load_plugins(plugins)
    for spec in specs:
        yield spec, run_spec(spec)


def read_once(path: str) -> Features:
    """The features of a file, read again only if the file has changed."""
    try:
        status = os.stat(path)
    except OSError:
        return read_features(path)  # which says what is wrong
    return _read_version(path, status.st_mtime_ns, status.st_size)


def read_with_few(path: str, few: str | None) -> Features:
    """The features of a file, with labelled pictures from another one if it is named."""
    features = read_once(path)
    return features if few is None else with_few(features, read_once(few))


def forget_files() -> None:
    """Give back the memory of the files that were read."""
    _read_version.cache_clear()


@functools.lru_cache(maxsize=2)
def _read_version(path: str, modified: int, size: int) -> Features:
    return read_features(path)


class _Worker:
    """A process at the other end of a pipe, with the spec it is at work on."""

    def __init__(self, plugins: tuple[str, ...]) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, far_end = context.Pipe()
        self.spec: RunSpec | None = None
        self.process = context.Process(target=_serve, args=(far_end, plugins), daemon=True)
        self.process.start()
        far_end.close()  # so that the death of the process closes the pipe

    def begin(self, spec: RunSpec) -> None:
        self.spec = spec
        with contextlib.suppress(OSError):  # a dead worker is noticed when it is read from
            self.pipe.send(spec)

    def collect(self) -> tuple[RunSpec, Result]:
        """The finished run; what went wrong over there is raised here."""
        try:
            outcome = self.pipe.recv()
        except (EOFError, OSError):
            self.process.join()
            raise InputError(
                f"A worker process ended early (exit code {self.process.exitcode}): "
                "there may be too little memory, so try fewer workers."
            ) from None
        if isinstance(outcome, BaseException):
            raise outcome
        assert self.spec is not None
        return self.spec, outcome

    def end(self) -> None:
        self.pipe.close()
        self.process.terminate()
        self.process.join()


def _run_in_processes(
    specs: Sequence[RunSpec], count: int, plugins: tuple[str, ...]
) -> Generator[tuple[RunSpec, Result], None, None]:
    waiting = list(reversed(specs))
    workers: list[_Worker] = []
    try:
        with _settings_of_children():
            workers += [_Worker(plugins) for _ in range(count)]
        for worker in workers:
            worker.begin(waiting.pop())
        busy = {worker.pipe: worker for worker in workers}
        while busy:
            for pipe in multiprocessing.connection.wait(list(busy)):
                worker = busy[pipe]  # type: ignore[index]
                finished = worker.collect()
                if waiting:
                    worker.begin(waiting.pop())
                else:
                    del busy[worker.pipe]
                yield finished
    finally:
        for worker in workers:
            worker.end()


@contextlib.contextmanager
def _settings_of_children() -> Iterator[None]:
    """Children inherit the environment and the signal mask of the moment they start in.

    The threads must be set before the child imports NumPy, hence here. Ctrl-C reaches every
    process of a terminal, but only this one shall act on it: it is held back meanwhile.
    """
    if hasattr(signal, "pthread_sigmask"):
        resource_tracker.ensure_running()  # starting it later would lift the mask
    kept = {name: os.environ.get(name) for name in _THREAD_COUNTS}
    os.environ.update(dict.fromkeys(_THREAD_COUNTS, "1"))
    _hold_interrupts(signal.SIG_BLOCK)
    try:
        yield
    finally:
        for name, value in kept.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
        _hold_interrupts(signal.SIG_UNBLOCK)


def _hold_interrupts(how: int) -> None:
    if hasattr(signal, "pthread_sigmask"):  # not on Windows
        signal.pthread_sigmask(how, {signal.SIGINT})


def _serve(pipe: multiprocessing.connection.Connection, plugins: tuple[str, ...]) -> None:
    """Life of a worker: answer each spec with a result or an exception, until the pipe closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _hold_interrupts(signal.SIG_UNBLOCK)
    with contextlib.suppress(EOFError, OSError):
        while True:
            pipe.send(_answer(pipe.recv(), plugins))


def _answer(spec: RunSpec, plugins: tuple[str, ...]) -> Result | Exception:
    try:
        load_plugins(plugins)
        _use_one_torch_thread()
        return run_spec(spec)
    except InputError as error:
        return error
    except Exception:  # as text, because not every exception survives the way through a pipe
        return RuntimeError(f"A run failed in a worker process:\n{traceback.format_exc()}")


def _use_one_torch_thread() -> None:
    if "torch" in sys.modules:  # never imported for this alone
        sys.modules["torch"].set_num_threads(1)
