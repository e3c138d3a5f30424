"""The peak memory of a run, measured in a fresh process over its first images.

A process that has done other runs, or that has a large parent, would tell of their memory too.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import re
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

from crg.engine.reading import read_with_few
from crg.engine.spec import RunSpec
from crg.evaluate import run
from crg.plugins import load_plugins
from crg.threads import ONE_THREAD
from crg.types import Step

N_IMAGES = 64
_STATUS = Path("/proc/self/status")
_CHILD = (
    "import pickle, sys; sys.path[:] = pickle.load(sys.stdin.buffer);"
    "from crg.engine.memory import measure; measure()"
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
