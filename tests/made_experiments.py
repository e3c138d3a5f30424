"""Small experiments and the data for them, made on the spot."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from crg.bench.design import read_design
from crg.bench.plan import Plan, plan
from crg.bench.rerun import measured_values
from crg.bench.sources import discover, find_sources
from crg.engine.worker import Outcome
from crg.results.schema import Data, Failure, RunSpec
from encoding_fakes import HashEncoder, dots, run
from made_files import save_stream

DEADLY = '''
"""TDA, until it strikes."""
import os
import signal
from pathlib import Path

import crg


@crg.register
class Deadly(crg.get_method("tda")):
    """TDA that kills its process at the twelfth image, so many times in all."""

    name = "deadly"
    n_seen = 0

    def step(self, sample):
        self.n_seen += 1
        struck = len(list(Path({folder!r}).glob("struck-*")))
        if self.n_seen == 12 and struck < {times}:
            Path({folder!r}, f"struck-{{struck}}").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().step(sample)
'''
ROWS = '[[row]]\nmethod = "tda"\n\n[[row]]\nmethod = "crg"\n'
FILES = "[[data]]\nfiles = true\n"


def save_experiment(folder: Path, text: str = f"{ROWS}\n{FILES}") -> Path:
    """The file of an experiment."""
    path = folder / "small.toml"
    path.write_text(text)
    return path


def save_store(folder: Path, dataset: str = "dtd", model: str = "RN50:openai") -> Path:
    """A small store that says it is a catalogued dataset."""
    run(dots(12, name=dataset), folder, HashEncoder(model))
    return folder


def planned(folder: Path, text: str = f"{ROWS}\n{FILES}") -> Plan:
    """The plan of an experiment on the streams in ``folder/data``, of which there is one."""
    data = folder / "data"
    data.mkdir(exist_ok=True)
    if not any(data.iterdir()):
        save_stream(data / "stream.npz")
    design = read_design(save_experiment(folder, text))
    sources = find_sources(design, discover([data]), folder / "bench")
    return plan(design, sources, folder / "bench")


def spec(
    path: str | Path,
    method: str = "zero_shot",
    given: dict[str, Any] | None = None,
    seed: int = 0,
    few: str | None = None,
    **more: Any,
) -> RunSpec:
    """A run, ready for the engine."""
    labelled = None if few is None else Data(few)
    return RunSpec(Data(str(path)), method, given or {}, seed, labelled, **more)


def lines_of(path: Path) -> list[dict[str, Any]]:
    """All lines of a results file."""
    return [json.loads(line) for line in path.read_text().splitlines()]


def save_deadly(folder: Path, times: int = 1) -> str:
    """A file with the method ``deadly``, which kills its process so many times."""
    path = folder / "deadly_method.py"
    path.write_text(DEADLY.format(folder=str(folder), times=times))
    return str(path)


def n_struck(folder: Path) -> int:
    """How many processes were killed."""
    return len(list(folder.glob("struck-*")))


def answers(outcomes: Iterable[tuple[RunSpec, Outcome]]) -> dict[str, Any]:
    """What came of each run, without what depends on the time and the machine."""
    return {
        f"{Path(spec.data.path).name} {spec.method} {spec.seed} {spec.scenario}": outcome.reason
        if isinstance(outcome, Failure)
        else measured_values(outcome)
        for spec, outcome in outcomes
    }
