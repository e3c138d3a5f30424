"""One run in this process, with the same result wherever it is done."""

from __future__ import annotations

import time
import traceback
from collections.abc import Sequence
from dataclasses import replace

from crg.engine.memory import peak_bytes
from crg.engine.reading import read_with_few
from crg.engine.spec import Failure, Outcome, RunSpec, Tell
from crg.evaluate import run
from crg.plugins import load_plugins
from crg.threads import one_torch_thread
from crg.types import InputError, Result, Step

_PAUSE = 0.25  # seconds between two reports of one run


def run_spec(
    spec: RunSpec, plugins: Sequence[str] = (), tell: Tell = lambda done, total: None
) -> Result:
    """Run one spec in this process with one computing thread; ``tell`` hears how far it is."""
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
