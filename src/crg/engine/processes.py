"""Runs in several processes of this machine; one that dies is replaced."""

from __future__ import annotations

import contextlib
import multiprocessing
import signal
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from concurrent import futures
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from typing import Any

from crg.engine.worker import OnProgress, Outcome, attempt, end_with_parent, forget_files
from crg.results.provenance import failed_run
from crg.results.schema import RunSpec
from crg.threads import ONE_THREAD, environment

_TRIES = 2  # times that a run is started if its process dies
_PAUSE = 0.25  # seconds between two looks at the progress


def run_all(
    specs: Sequence[RunSpec],
    workers: int = 1,
    on_progress: OnProgress = lambda spec, done, total: None,
) -> Generator[tuple[RunSpec, Outcome], None, None]:
    """Run all specs and yield each with its result, or its failure, as soon as it is done.

    Each worker is a process with one computing thread that reads each file once: a method may take
    its process down with it. A process that dies is replaced, and its run is tried once more.
    ``on_progress`` is called here, about four times a second for each run. To stop early, close the
    iterator: the workers end at once.
    """
    forget_files()  # the workers need the memory
    waiting = deque((spec, 1) for spec in specs)
    busy: dict[futures.Future[Outcome], tuple[_Worker, RunSpec, int]] = {}
    idle = [_Worker() for _ in range(min(workers, len(specs)))]
    try:
        while waiting or busy:
            while waiting and idle:
                worker, (spec, tries) = idle.pop(), waiting.popleft()
                busy[worker.start(spec)] = worker, spec, tries
            while idle:  # their memory may help those that are still at work
                idle.pop().end()
            done, _ = futures.wait(busy, _PAUSE, futures.FIRST_COMPLETED)
            for worker, spec, _ in busy.values():
                while worker.news.poll():
                    on_progress(spec, *worker.news.recv())
            for future in done:
                worker, spec, tries = busy.pop(future)
                if not isinstance(future.exception(), futures.BrokenExecutor):
                    idle.append(worker)
                    yield spec, future.result()
                    continue
                idle.append(_Worker())
                code = worker.end()
                if tries < _TRIES:
                    waiting.appendleft((spec, tries + 1))
                else:
                    yield spec, failed_run(spec.key, _died(code))
    finally:
        for worker in (*idle, *(each for each, _, _ in busy.values())):
            worker.end()


def _died(code: int | None) -> str:
    """The sentence for an exit code; a negative one is that of a signal.

    >>> _died(-9)[:54]
    'The worker process was ended by the signal SIGKILL, wh'
    """
    how = f"ended with exit code {code}"
    if code is not None and code < 0:
        names = {each.value: each.name for each in signal.Signals}
        how = f"was ended by the signal {names.get(-code, -code)}"
    return (
        f"The worker process {how}, which too little memory or the method itself may cause: "
        "try fewer workers or correct the method."
    )


class _Worker:
    """A pool of one process, so that a process that dies breaks no other run."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.news, self._far_end = context.Pipe(duplex=False)  # images done, images in all
        self._pool = futures.ProcessPoolExecutor(1, context, _prepare, (self._far_end,))
        self._process: Any = None

    def start(self, spec: RunSpec) -> futures.Future[Outcome]:
        """Begin a run; the first one starts the process."""
        if self._process is not None:
            return self._pool.submit(_run, spec)
        before = multiprocessing.active_children()
        with _settings_of_children():
            future = self._pool.submit(_run, spec)
        [self._process] = (p for p in multiprocessing.active_children() if p not in before)
        return future

    def end(self) -> int | None:
        """End the process at once, whatever it is doing, and return its exit code."""
        if self._process is not None:
            self._process.terminate()
        self._pool.shutdown(cancel_futures=True)
        self.news.close()
        self._far_end.close()
        return None if self._process is None else self._process.exitcode


_news: Any = None  # in a worker: where it reports its progress


def _prepare(news: Connection) -> None:
    """Initialise a worker process."""
    global _news
    _news = news
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _mask_interrupts(signal.SIG_UNBLOCK)
    end_with_parent()


def _run(spec: RunSpec) -> Outcome:
    return attempt(spec, lambda done, total: _news.send((done, total)))


@contextlib.contextmanager
def _settings_of_children() -> Iterator[None]:
    """Children inherit the environment and the signal mask of the moment they start in.

    The threads must be set before the child imports NumPy, hence here. Ctrl-C reaches every
    process of a terminal, but only this one acts on it: it is blocked while a child starts.
    """
    if hasattr(signal, "pthread_sigmask"):
        resource_tracker.ensure_running()  # starting it later would lift the mask
    _mask_interrupts(signal.SIG_BLOCK)
    try:
        with environment(ONE_THREAD):
            yield
    finally:
        _mask_interrupts(signal.SIG_UNBLOCK)


def _mask_interrupts(how: int) -> None:
    if hasattr(signal, "pthread_sigmask"):  # not on Windows
        signal.pthread_sigmask(how, {signal.SIGINT})
