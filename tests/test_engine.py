"""The engine: the same results here and in worker processes, and a clean end."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from crg.engine.processes import run_all
from crg.engine.worker import attempt, forget_files, peak_bytes, run_spec
from crg.features.files import read_features
from crg.results.schema import Failure, Result
from crg.streams import Scenario
from made_experiments import answers, n_struck, save_deadly, spec
from made_files import save_plugin, save_stream
from processes import is_gone, wait_until

needs_proc = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")
LARGE = 200_000_000


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Two small streams."""
    folder = tmp_path_factory.mktemp("streams")
    return [str(save_stream(folder / f"{seed}.npz", seed=seed)) for seed in (0, 1)]


def _altered(folder: Path, body: str) -> str:
    """The plug-in ``constant`` with another body of its step."""
    return str(save_plugin(folder, body, "altered"))


def test_workers_give_what_one_process_gives(files: list[str]) -> None:
    """Each spec comes back once with the same answers, in whichever order."""
    specs = [spec(path, m, {}, s) for path in files for m in ("tda", "zero_shot") for s in (0, 1)]
    there = list(run_all(specs, workers=2))
    assert len(there) == len(specs)
    assert answers(there) == answers((each, attempt(each)) for each in specs)


def test_stopping_early_ends_the_workers(files: list[str], tmp_path: Path) -> None:
    """Closing the iterator ends every process at once and keeps what was yielded."""
    plugins = (str(save_plugin(tmp_path)),)
    slow = [spec(files[0], "constant", {"seconds": 60.0}, s, plugins=plugins) for s in (1, 2)]
    runs = run_all([spec(files[0]), *slow], workers=2)
    assert next(runs)[0].method == "zero_shot"
    assert len(multiprocessing.active_children()) == 2
    runs.close()
    assert multiprocessing.active_children() == []


def test_workers_load_plug_ins_and_compute_in_one_thread(
    files: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A method from outside the package runs; afterwards our own environment is as before."""
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
    names = "('OMP', 'OPENBLAS', 'MKL', 'NUMBA')"
    spy = f"assert all(os.environ[name + '_NUM_THREADS'] == '1' for name in {names})"
    plugins = (_altered(tmp_path, spy),)
    specs = [spec(files[0], "constant", {"answer": k}, k, plugins=plugins) for k in range(4)]
    runs = answers(run_all(specs, workers=2)).values()
    assert sum(result["accuracy"] for result in runs) == pytest.approx(1.0)
    assert os.environ["OMP_NUM_THREADS"] == "7"
    assert "OPENBLAS_NUM_THREADS" not in os.environ


def test_a_run_that_fails_is_not_the_end(files: list[str], tmp_path: Path) -> None:
    """Bad input is a sentence, a bug a line with its traceback, and the other runs are done."""
    plugins = (_altered(tmp_path, "1 / 0"),)
    specs = [spec(files[0], method, key=method) for method in ("zero_shot", "tda")]
    specs += [spec(files[0], "constant", key="bug", plugins=plugins), spec("none.npz", key="lost")]
    outcomes = {each.key: outcome for each, outcome in run_all(specs, workers=2)}
    assert isinstance(outcomes["zero_shot"], Result) and isinstance(outcomes["tda"], Result)
    bug, lost = outcomes["bug"], outcomes["lost"]
    assert isinstance(bug, Failure) and isinstance(lost, Failure)
    assert (lost.reason, lost.trace) == ("none.npz does not exist: check the path.", "")
    assert bug.reason == "ZeroDivisionError: division by zero" and "altered.py" in bug.trace
    assert multiprocessing.active_children() == []


def test_a_process_that_dies_is_replaced(files: list[str], tmp_path: Path) -> None:
    """A process killed in mid-run takes nothing with it: every answer is as without its death."""
    plugins = (save_deadly(tmp_path, times=1),)
    methods = ("deadly", "tda")
    specs = [spec(files[0], m, {}, seed, plugins=plugins) for seed in (0, 1) for m in methods]
    killed = answers(run_all(specs, workers=2))
    assert n_struck(tmp_path) == 1
    assert killed == answers(run_all(specs, workers=2))


def test_a_run_that_kills_every_process_is_a_failure(files: list[str], tmp_path: Path) -> None:
    """After the second death the run is given up with the signal, and the others are run."""
    deadly = spec(files[0], "deadly", plugins=(save_deadly(tmp_path, times=9),))
    outcomes = list(run_all([deadly, *(spec(files[0], "tda", {}, s) for s in (0, 1))], workers=2))
    failed = {each.method: out for each, out in outcomes if isinstance(out, Failure)}
    assert len(outcomes) == 3 and list(failed) == ["deadly"]
    assert failed["deadly"].reason == (
        "The worker process was ended by the signal SIGKILL, which too little memory or the "
        "method itself may cause: try fewer workers or correct the method."
    )
    assert n_struck(tmp_path) == 2


@needs_proc
@pytest.mark.parametrize("call", ["list(run_all([spec]))", "peak_bytes(spec)"])
def test_processes_end_with_a_parent_that_is_killed(
    files: list[str], tmp_path: Path, call: str
) -> None:
    """A parent that cannot clean up leaves no process behind, whether it runs or measures."""
    seen = tmp_path / "pid"
    write = f"__import__('pathlib').Path({str(seen)!r}).write_text(str(os.getpid()))"
    plugin = _altered(tmp_path, f"{write}; time.sleep(60)")
    code = (
        "from crg.engine.processes import run_all; from crg.engine.worker import peak_bytes;"
        "from crg.results.schema import Data, RunSpec;"
        f"spec = RunSpec(Data({files[0]!r}), 'constant', {{}}, 0, plugins=({plugin!r},)); {call}"
    )
    parent = subprocess.Popen([sys.executable, "-c", code])
    wait_until(lambda: seen.exists() and seen.read_text() != "")
    parent.kill()
    parent.wait()
    wait_until(lambda: is_gone(int(seen.read_text())))


def test_progress_of_each_run_is_reported(files: list[str], tmp_path: Path) -> None:
    """Each run begins with none of its images and comes nearer to all of them."""
    plugins = (str(save_plugin(tmp_path)),)
    specs = [spec(files[0], "constant", {"seconds": 0.02}, s, plugins=plugins) for s in range(2)]
    reported: dict[int, list[tuple[int, int]]] = {0: [], 1: []}
    runs = run_all(specs, 2, lambda each, *count: reported[each.seed].append(count))
    assert len(list(runs)) == 2
    for steps in reported.values():
        assert steps[:2] == [(0, 0), (0, 40)]
        assert steps == sorted(steps) and 0 < steps[-1][0] <= 40


def test_a_file_is_read_once_until_it_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten runs read one file once; a file that has changed is read again."""
    read = Mock(side_effect=read_features)
    monkeypatch.setattr("crg.engine.worker.read_features", read)
    forget_files()
    path = str(save_stream(tmp_path / "a.npz"))
    for seed in range(10):
        attempt(spec(path, seed=seed))
    read.assert_called_once_with(path)
    save_stream(tmp_path / "a.npz", n=41)
    few, more = Scenario(images=30), str(save_stream(tmp_path / "b.npz"))
    specs = [spec(path), spec(path, then=(more,)), spec(path, scenario=few)]
    assert [run_spec(each).n_samples for each in specs] == [41, 81, 30]


@needs_proc
def test_a_method_that_takes_more_is_seen_to(tmp_path: Path) -> None:
    """The figure is that of the run alone, with plug-ins and labelled images, in any process."""
    path, few = str(save_stream(tmp_path / "a.npz")), str(save_stream(tmp_path / "few.npz", seed=1))
    greedy = _altered(tmp_path, f"self.kept = getattr(self, 'kept', None) or b'1' * {LARGE}")
    asked: dict[str, Any] = {"scenario": Scenario(images=20), "memory": True, "plugins": (greedy,)}
    specs = [spec(path, method, few=few, **asked) for method in ("constant", "zero_shot")]
    runs = [result for _, result in run_all([*specs, spec(path, "tda")], workers=2)]
    peaks: dict[str, Any] = {
        result.method: result.metrics.get("peak_bytes")
        for result in runs
        if isinstance(result, Result)
    }
    assert peaks["tda"] is None  # it did not ask
    assert 10_000_000 < peaks["zero_shot"] < 1_000_000_000
    assert LARGE * 0.9 < peaks["constant"] - peaks["zero_shot"] < LARGE * 1.5


@needs_proc
def test_only_the_first_images_are_run(tmp_path: Path) -> None:
    """A stream that is longer than what is measured is not run to its end."""
    plugin = save_plugin(tmp_path, f"open({str(tmp_path / 'seen')!r}, 'a').write('1')")
    path = str(save_stream(tmp_path / "a.npz", n=200))
    assert peak_bytes(spec(path, "constant", plugins=(str(plugin),)))
    assert len((tmp_path / "seen").read_text()) == 64
    assert peak_bytes(spec(tmp_path / "none.npz", "tda")) is None  # a process that fails
