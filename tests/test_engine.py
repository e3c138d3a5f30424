"""The engine: the same results here and in worker processes, and a clean end."""

from __future__ import annotations

import multiprocessing
import os
import pickle
from pathlib import Path

import pytest

from crg import engine
from crg.engine import RunSpec, run_all
from crg.features import Features, read_features
from crg.types import InputError, Result
from made_files import save_plugin, save_stream


def _answers(result: Result) -> tuple[object, ...]:
    return result.method, result.seed, result.metrics["correct"], result.metrics["purity"]


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
    here = {id(spec): _answers(result) for spec, result in run_all(specs)}
    there = {id(spec): _answers(result) for spec, result in run_all(specs, workers=2)}
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
    accuracies = [r.metrics["accuracy"] for _, r in run_all(specs, workers=2, plugins=[plugin])]
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


def test_bad_input_in_a_worker_is_told_here(files: list[str]) -> None:
    """The sentence arrives as it was written, and no process is left."""
    specs = [RunSpec(files[0], "zero_shot"), RunSpec("none.npz", "zero_shot")]
    with pytest.raises(InputError, match=r"^none\.npz does not exist: check the path\.$"):
        list(run_all(specs, workers=2))
    assert multiprocessing.active_children() == []


def test_a_worker_that_dies_is_told_in_a_sentence(files: list[str], tmp_path: Path) -> None:
    """A killed process, as by a full memory, ends the runs with its exit code."""
    plugin = tmp_path / "deadly.py"
    plugin.write_text("import os\nos._exit(9)\n")
    specs = [RunSpec(files[0], "zero_shot", {}, seed) for seed in range(2)]
    with pytest.raises(InputError, match=r"exit code 9.*fewer workers"):
        list(run_all(specs, workers=2, plugins=[str(plugin)]))


def test_a_bug_in_a_worker_shows_its_traceback(files: list[str], tmp_path: Path) -> None:
    """What is no bad input arrives with the place it happened at."""
    plugin = tmp_path / "buggy.py"
    text = save_plugin(tmp_path).read_text().replace("time.sleep(self.config.seconds)", "1 / 0")
    plugin.write_text(text)
    specs = [RunSpec(files[0], "constant", {}, seed) for seed in range(2)]
    with pytest.raises(RuntimeError, match=r"(?s)buggy\.py.*ZeroDivisionError"):
        list(run_all(specs, workers=2, plugins=[str(plugin)]))


def test_a_file_is_read_once_until_it_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten runs read one file once; a file that was written anew is read anew."""
    read: list[str] = []

    def counted(path: str) -> Features:
        read.append(path)
        return read_features(path)

    monkeypatch.setattr("crg.engine.read_features", counted)
    engine.forget_files()
    path = str(save_stream(tmp_path / "a.npz"))
    list(run_all([RunSpec(path, "zero_shot", {}, seed) for seed in range(10)]))
    assert read == [path]
    save_stream(tmp_path / "a.npz", n=41)
    [(_, result)] = run_all([RunSpec(path, "zero_shot")])
    assert result.n_samples == 41
