"""The engine: the same results here and in worker processes, and a clean end."""

from __future__ import annotations

import multiprocessing
import os
import pickle
from pathlib import Path

import pytest

from crg import engine
from crg.engine import Failure, RunSpec, results_only, run_all
from crg.features.files import Features, read_features
from crg.streams import Scenario
from crg.types import InputError, Result
from deadly_methods import answers, n_struck, save_deadly
from made_files import save_plugin, save_stream


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Two small streams."""
    folder = tmp_path_factory.mktemp("streams")
    return [str(save_stream(folder / f"{seed}.npz", seed=seed)) for seed in (0, 1)]


def test_workers_give_what_one_process_gives(files: list[str]) -> None:
    """Each spec comes back once with the same answers, in whichever order."""
    specs = [
        RunSpec(path, m, {}, s) for path in files for m in ("tda", "zero_shot") for s in (0, 1)
    ]
    here, there = answers(run_all(specs)), answers(run_all(specs, workers=2))
    assert len(here) == 8
    assert here == there


def test_one_worker_keeps_the_order_and_starts_no_process(files: list[str]) -> None:
    """Runs happen here, one after the other, only as far as they are asked for."""
    specs = [RunSpec(files[0], "zero_shot", {}, seed) for seed in range(3)]
    runs = run_all(specs)
    assert next(runs)[0] is specs[0]
    assert multiprocessing.active_children() == []
    assert [spec.seed for spec, _ in runs] == [1, 2]


def test_specs_can_be_sent_to_another_process() -> None:
    """A spec survives pickling as what it was."""
    spec = RunSpec("a.npz", "crg", {"queue_size": 3}, 7)
    assert pickle.loads(pickle.dumps(spec)) == spec


def test_stopping_early_ends_the_workers(files: list[str], tmp_path: Path) -> None:
    """Closing the iterator ends every process at once and keeps what was yielded."""
    plugin = str(save_plugin(tmp_path))
    slow = [RunSpec(files[0], "constant", {"seconds": 60.0}, seed) for seed in (1, 2)]
    runs = run_all([RunSpec(files[0], "zero_shot"), *slow], workers=2, plugins=[plugin])
    assert next(runs)[0].method == "zero_shot"
    assert len(multiprocessing.active_children()) == 2
    runs.close()
    assert multiprocessing.active_children() == []


def test_a_plug_in_works_in_the_workers(files: list[str], tmp_path: Path) -> None:
    """A method from a file outside the package is known to every process."""
    plugin = str(save_plugin(tmp_path))
    specs = [RunSpec(files[0], "constant", {"answer": k}, 0) for k in range(4)]
    runs = results_only(run_all(specs, workers=2, plugins=[plugin]))
    accuracies = [result.metrics["accuracy"] for _, result in runs]
    assert sum(accuracies) == pytest.approx(1.0)


def test_workers_compute_in_one_thread_and_leave_our_environment(
    files: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The children see one thread each; afterwards our own settings are as before."""
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
    plugin = tmp_path / "spy.py"
    plugin.write_text(
        "import os, pathlib\n"
        "names = 'OMP OPENBLAS MKL NUMBA'.split()\n"
        "seen = ' '.join(os.environ[name + '_NUM_THREADS'] for name in names)\n"
        f"pathlib.Path({str(tmp_path)!r}, f'{{os.getpid()}}.seen').write_text(seen)\n"
    )
    specs = [RunSpec(files[0], "zero_shot", {}, seed) for seed in range(2)]
    list(run_all(specs, workers=2, plugins=[str(plugin)]))
    seen = [path.read_text() for path in tmp_path.glob("*.seen")]
    assert seen
    assert set(seen) == {"1 1 1 1"}
    assert os.environ["OMP_NUM_THREADS"] == "7"
    assert "OPENBLAS_NUM_THREADS" not in os.environ


@pytest.mark.parametrize("workers", [1, 2])
def test_a_run_that_fails_is_not_the_end(files: list[str], tmp_path: Path, workers: int) -> None:
    """Bad input is a sentence, a bug a line with its traceback, and the other runs are done."""
    plugin = tmp_path / "buggy.py"
    text = save_plugin(tmp_path).read_text().replace("time.sleep(self.config.seconds)", "1 / 0")
    plugin.write_text(text.replace('"constant"', '"buggy"').replace("class Constant", "class B"))
    specs = [RunSpec(files[0], method, key=method) for method in ("zero_shot", "buggy", "tda")]
    specs.append(RunSpec("none.npz", "zero_shot", key="missing"))
    outcomes = {spec.key: outcome for spec, outcome in run_all(specs, workers, [str(plugin)])}
    first, bug, last, missing = (outcomes[spec.key] for spec in specs)
    assert isinstance(first, Result) and isinstance(last, Result)
    assert missing == Failure("none.npz does not exist: check the path.")
    assert isinstance(bug, Failure)
    assert bug.reason == "ZeroDivisionError: division by zero"
    assert "buggy.py" in bug.trace
    assert multiprocessing.active_children() == []


def test_the_first_failure_can_be_the_end(files: list[str]) -> None:
    """Who wants results only gets the sentence as it was written, and no process is left."""
    specs = [RunSpec(files[0], "zero_shot"), RunSpec("none.npz", "zero_shot")]
    with pytest.raises(InputError, match=r"^none\.npz does not exist: check the path\.$"):
        list(results_only(run_all(specs, workers=2)))
    assert multiprocessing.active_children() == []


def test_a_bug_that_is_the_end_shows_its_traceback(files: list[str], tmp_path: Path) -> None:
    """What is no bad input is raised with the place it happened at."""
    text = save_plugin(tmp_path).read_text().replace("time.sleep(self.config.seconds)", "1 / 0")
    plugin = tmp_path / "buggy.py"
    plugin.write_text(text)
    specs = [RunSpec(files[0], "constant", {}, seed) for seed in range(2)]
    with pytest.raises(RuntimeError, match=r"(?s)buggy\.py.*ZeroDivisionError"):
        list(results_only(run_all(specs, workers=2, plugins=[str(plugin)])))


def test_a_process_that_dies_is_replaced(files: list[str], tmp_path: Path) -> None:
    """A process killed in mid-run takes nothing with it: every answer is as without its death."""
    specs = [RunSpec(files[0], method, {}, s) for s in (0, 1) for method in ("deadly", "tda")]
    killed = answers(run_all(specs, workers=2, plugins=[save_deadly(tmp_path, times=1)]))
    assert n_struck(tmp_path) == 1
    assert killed == answers(run_all(specs, workers=2, plugins=[save_deadly(tmp_path, times=0)]))


def test_a_run_that_kills_every_process_is_a_failure(files: list[str], tmp_path: Path) -> None:
    """After the second death the run is given up with the exit code, and the others go on."""
    specs = [RunSpec(files[0], "deadly", {}, 0), *(RunSpec(files[0], "tda", {}, s) for s in (0, 1))]
    outcomes = dict(enumerate(run_all(specs, workers=2, plugins=[save_deadly(tmp_path, times=9)])))
    failed = {spec.method: out for spec, out in outcomes.values() if isinstance(out, Failure)}
    assert len(outcomes) == 3 and list(failed) == ["deadly"]
    assert failed["deadly"].reason == (
        "The worker process was ended by the signal SIGKILL, which too little memory or the "
        "method itself may cause: try fewer workers or correct the method."
    )
    assert n_struck(tmp_path) == 2


def test_a_single_worker_may_be_a_process_of_its_own(files: list[str], tmp_path: Path) -> None:
    """A method that ends its process ends no more than its run, and the exit code is reported."""
    text = save_plugin(tmp_path).read_text()
    plugin = tmp_path / "leaving.py"
    plugin.write_text(text.replace("time.sleep(self.config.seconds)", "os._exit(7)"))
    specs = [RunSpec(files[0], "constant"), RunSpec(files[0], "tda")]
    runs = run_all(specs, workers=1, plugins=[str(plugin)], isolated=True)
    (_, lost), (_, kept) = runs
    assert isinstance(lost, Failure) and isinstance(kept, Result)
    assert lost.reason.startswith("The worker process ended with exit code 7, which too little")
    assert list(run_all([], isolated=True)) == []


@pytest.mark.parametrize("workers", [1, 2])
def test_progress_of_each_run_is_reported(files: list[str], tmp_path: Path, workers: int) -> None:
    """Each run begins with none of its images and comes nearer to all of them."""
    plugin = str(save_plugin(tmp_path))
    specs = [
        RunSpec(files[0], "constant", {"seconds": 0.02}, seed, key=str(seed)) for seed in range(2)
    ]
    told: dict[str, list[tuple[int, int]]] = {spec.key: [] for spec in specs}

    def tell(spec: RunSpec, done: int, total: int) -> None:
        told[spec.key].append((done, total))

    assert len(list(run_all(specs, workers, [plugin], tell))) == 2
    for steps in told.values():
        assert steps[:2] == [(0, 0), (0, 40)]
        assert steps == sorted(steps) and 0 < steps[-1][0] <= 40


def test_streams_of_several_files_and_other_scenarios_are_run(files: list[str]) -> None:
    """Files that come after the first, and fewer images, are what is measured."""
    few = Scenario(images=30)
    specs = [RunSpec(files[0], "tda", then=(files[1],)), RunSpec(files[0], "tda", scenario=few)]
    assert [result.n_samples for _, result in results_only(run_all(specs))] == [80, 30]


def test_a_file_is_read_once_until_it_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten runs read one file once; a file that was written anew is read anew."""
    read: list[str] = []

    def counted(path: str) -> Features:
        read.append(path)
        return read_features(path)

    monkeypatch.setattr("crg.engine.worker.read_features", counted)
    engine.forget_files()
    path = str(save_stream(tmp_path / "a.npz"))
    list(run_all([RunSpec(path, "zero_shot", {}, seed) for seed in range(10)]))
    assert read == [path]
    save_stream(tmp_path / "a.npz", n=41)
    [(_, result)] = results_only(run_all([RunSpec(path, "zero_shot")]))
    assert result.n_samples == 41
