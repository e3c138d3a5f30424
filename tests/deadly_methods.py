"""A plug-in whose method kills the process that it is in, and what to compare runs by."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from crg.engine.worker import Outcome
from crg.results.schema import Failure, RunSpec

PLUGIN = '''
"""TDA, until it strikes."""
import os
import signal
from pathlib import Path

import crg

TDA = crg.get_method("tda")


@crg.register
class Deadly(TDA):
    """TDA that kills its process at the twelfth image, so many times in all."""

    name = "deadly"

    def reset(self):
        """Count from the start."""
        super().reset()
        self.n_seen = 0

    def step(self, sample):
        """One more image."""
        self.n_seen += 1
        struck = len(list(Path({folder!r}).glob("struck-*")))
        if self.n_seen == 12 and struck < {times}:
            Path({folder!r}, f"struck-{{struck}}").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().step(sample)
'''


def save_deadly(folder: Path, times: int = 1) -> str:
    """A file with the method ``deadly``, which strikes so many times."""
    path = folder / "deadly_method.py"
    path.write_text(PLUGIN.format(folder=str(folder), times=times))
    return str(path)


def n_struck(folder: Path) -> int:
    """How many processes were killed."""
    return len(list(folder.glob("struck-*")))


def answers(outcomes: Iterable[tuple[RunSpec, Outcome]]) -> dict[str, Any]:
    """What came of each run, without what depends on the time and the machine."""
    return {
        f"{Path(spec.data.path).name} {spec.method} {spec.seed} {spec.scenario}": _answer(outcome)
        for spec, outcome in outcomes
    }


def _answer(outcome: Outcome) -> Any:
    if isinstance(outcome, Failure):
        return outcome.reason
    return [
        outcome.options,
        outcome.n_samples,
        *map(_timeless, (outcome.metrics, outcome.zero_shot)),
    ]


def _timeless(metrics: Mapping[str, Any]) -> dict[str, Any]:
    changing = ("ms_per_step", "ms_per_step_median", "peak_bytes")
    return {name: value for name, value in metrics.items() if name not in changing}
