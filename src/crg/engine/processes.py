"""Runs in several processes of this machine; one that dies is replaced."""

from __future__ import annotations

import contextlib
import functools
import multiprocessing
import multiprocessing.connection
import signal
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection

from crg.engine.worker import Failure, OnProgress, Outcome, RunSpec, attempt, forget_files
from crg.threads import ONE_THREAD, environment

_TRIES = 2  # times that a run is begun, if its process dies
_LAST_BREATH = 5.0  # seconds


def run_all(
    specs: Sequence[RunSpec],
    workers: int = 1,
    plugins: Sequence[str] = (),
    on_progress: OnProgress | None = None,
    isolated: bool = False,
) -> Generator[tuple[RunSpec, Outcome], None, None]:
    """Run all specs and yield each with its result, or its failure, as soon as it is done.

    With one worker everything happens in this process, in the given order, unless the runs
    shall be ``isolated`` from it. Otherwise each worker is a process of its own with one
    computing thread that loads ``plugins`` first and reads each file once. A process that
    dies is replaced, and its run is tried once more. ``on_progress`` is called here for each run
    at work, about four times a second at most. To stop early, close the iterator: the workers
    end at once.
    """
    count = min(workers, len(specs))
    told = on_progress or (lambda spec, done, total: None)
    if count > 1 or (isolated and specs):
        forget_files()  # the workers need the memory
        with contextlib.closing(_Crew(specs, tuple(plugins), told)) as crew:
            crew.hire(count)
            yield from crew.outcomes()
        return
    for spec in specs:
        yield spec, attempt(spec, plugins, functools.partial(told, spec))


@dataclass
class _Task:
    spec: RunSpec
    tries: int = 0


class _Worker:
    """A process at the other end of a pipe, with the task it is at work on."""

    def __init__(self, plugins: tuple[str, ...], task: _Task) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, far_end = context.Pipe()
        self._process = context.Process(target=_serve, args=(far_end, plugins), daemon=True)
        self._process.start()
        far_end.close()  # so that the death of the process closes the pipe
        self.begin(task)

    def begin(self, task: _Task) -> None:
        self.task = task
        task.tries += 1
        with contextlib.suppress(OSError):  # a dead worker is noticed when it is read from
            self.pipe.send(task.spec)

    def receive(self) -> Outcome | tuple[int, int] | None:
        """How far the run is, what came of it, or None from a process that is dead."""
        try:
            message: Outcome | tuple[int, int] = self.pipe.recv()
        except (EOFError, OSError):
            return None
        return message

    def exit_code(self) -> int | None:
        """Of a process that has closed its pipe, and so is dead or dying."""
        self._process.join(_LAST_BREATH)
        return self._process.exitcode

    def end(self) -> None:
        self.pipe.close()
        self._process.terminate()
        self._process.join()


class _Crew:
    """The workers, and the tasks that wait for one."""

    def __init__(
        self, specs: Sequence[RunSpec], plugins: tuple[str, ...], on_progress: OnProgress
    ) -> None:
        self._waiting = deque(_Task(spec) for spec in specs)
        self._plugins, self._on_progress = plugins, on_progress
        self._busy: dict[Connection, _Worker] = {}

    def hire(self, count: int) -> None:
        """So many processes more, each with a task, as long as there are tasks."""
        with _settings_of_children():
            for _ in range(min(count, len(self._waiting))):
                worker = _Worker(self._plugins, self._waiting.popleft())
                self._busy[worker.pipe] = worker

    def outcomes(self) -> Generator[tuple[RunSpec, Outcome], None, None]:
        """What came of each task, until none is left."""
        while self._busy:
            for pipe in multiprocessing.connection.wait(list(self._busy)):
                worker = self._busy[pipe]  # type: ignore[index]
                spec, message = worker.task.spec, worker.receive()
                if isinstance(message, tuple):
                    self._on_progress(spec, *message)
                    continue
                outcome = self._lost(worker) if message is None else message
                if message is not None:
                    self._go_on(worker)
                if outcome is not None:
                    yield spec, outcome

    def close(self) -> None:
        """End all processes."""
        for worker in self._busy.values():
            worker.end()

    def _go_on(self, worker: _Worker) -> None:
        if self._waiting:
            worker.begin(self._waiting.popleft())
        else:
            del self._busy[worker.pipe]
            worker.end()  # its memory may help those that are still at work

    def _lost(self, worker: _Worker) -> Failure | None:
        """Another process takes the place of a dead one, and its task unless that is to blame."""
        del self._busy[worker.pipe]
        code, failure = worker.exit_code(), None
        worker.end()
        if worker.task.tries < _TRIES:
            self._waiting.appendleft(worker.task)
        else:
            failure = Failure(
                f"The worker process {_ending(code)}, which too little memory or the method "
                "itself may cause: try fewer workers or correct the method."
            )
        self.hire(1)
        return failure


def _ending(code: int | None) -> str:
    """How a process ended, by its exit code; a negative one is that of a signal.

    >>> _ending(7), _ending(-9)
    ('ended with exit code 7', 'was ended by the signal SIGKILL')
    """
    if code is None:
        return "ended without an exit code"
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was ended by the signal {signal.Signals(-code).name}"
    except ValueError:  # one without a name, such as those for real time
        return f"was ended by the signal {-code}"


@contextlib.contextmanager
def _settings_of_children() -> Iterator[None]:
    """Children inherit the environment and the signal mask of the moment they start in.

    The threads must be set before the child imports NumPy, hence here. Ctrl-C reaches every
    process of a terminal, but only this one shall act on it: it is held back meanwhile.
    """
    if hasattr(signal, "pthread_sigmask"):
        resource_tracker.ensure_running()  # starting it later would lift the mask
    _hold_interrupts(signal.SIG_BLOCK)
    try:
        with environment(ONE_THREAD):
            yield
    finally:
        _hold_interrupts(signal.SIG_UNBLOCK)


def _hold_interrupts(how: int) -> None:
    if hasattr(signal, "pthread_sigmask"):  # not on Windows
        signal.pthread_sigmask(how, {signal.SIGINT})


def _serve(pipe: Connection, plugins: tuple[str, ...]) -> None:
    """Life of a worker: answer each spec with what came of it, until the pipe closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _hold_interrupts(signal.SIG_UNBLOCK)
    with contextlib.suppress(EOFError, OSError):
        while True:
            tell = functools.partial(_tell, pipe)
            pipe.send(attempt(pipe.recv(), plugins, tell))


def _tell(pipe: Connection, done: int, total: int) -> None:
    pipe.send((done, total))  # fails, and ends the run with it, when the parent is gone
