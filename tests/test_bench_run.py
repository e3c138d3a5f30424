"""Running an experiment: nothing twice, nothing lost, and failures that end nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from crg.bench.plan import Plan
from crg.bench.run import EngineOptions, begin, missing, run_specs
from crg.cli import main
from crg.results import ledger
from crg.results.schema import Entry, Outline, RunSpec
from crg.types import InputError
from made_experiments import FILES, ROWS, lines_of, planned, save_experiment
from made_files import save_plugin, save_stream

TWO_ORDERS = f"orders = 2\n{ROWS}\n{FILES}"


def _begun(made: Plan, path: Path) -> list[RunSpec]:
    """The outline is in the file; what is left to run."""
    known = ledger.read(path)
    begin(made, known)
    return missing(made, known)


def _finish(folder: Path, text: str = TWO_ORDERS) -> tuple[Path, int]:
    path = folder / "results" / "small.jsonl"
    left = _begun(planned(folder, text), path)
    return path, len(list(run_specs(left, ledger.read(path), EngineOptions(workers=1))))


def test_the_outline_comes_first_and_every_run_follows(tmp_path: Path) -> None:
    """One line of the kind experiment, then one line per run under the key of its cells."""
    path, count = _finish(tmp_path)
    first, *runs = lines_of(path)
    assert first["kind"] == "experiment" and count == len(runs) == 6
    keys = {cell["key"] for cell in first["cells"]}
    assert keys == {run["key"] for run in runs}


def test_only_what_is_missing_is_run(tmp_path: Path) -> None:
    """A second call runs nothing; a lost line, a new row and a new order run alone."""
    path, _ = _finish(tmp_path)
    assert _finish(tmp_path) == (path, 0) and len(lines_of(path)) == 7
    path.write_text("\n".join(path.read_text().splitlines()[:-1]) + "\n")
    assert _finish(tmp_path)[1] == 1
    more = f'orders = 2\n{ROWS}[[row]]\nmethod = "dpe"\n{FILES}'
    assert _finish(tmp_path, more)[1] == 2
    assert [line.get("kind") for line in lines_of(path)].count("experiment") == 2
    assert _finish(tmp_path, more.replace("orders = 2", "orders = 3"))[1] == 4


def test_an_interruption_keeps_what_is_done(tmp_path: Path) -> None:
    """Runs that were yielded are on disk, and the next call does the others."""
    made, path = planned(tmp_path, TWO_ORDERS), tmp_path / "small.jsonl"
    runs = run_specs(_begun(made, path), ledger.read(path), EngineOptions(workers=1))
    next(runs)
    runs.close()
    assert len(lines_of(path)) == 2 and len(_begun(made, path)) == 5 and len(lines_of(path)) == 2


def test_what_another_command_has_written_is_not_written_again(tmp_path: Path) -> None:
    """Two writers of one file have the same runs to do, and each run is there once."""
    path = tmp_path / "small.jsonl"
    left, one = _begun(planned(tmp_path, TWO_ORDERS), path), EngineOptions(workers=1)
    slow = run_specs(left, ledger.read(path), one)
    next(slow)
    quick = list(run_specs(left[1:4], ledger.read(path), one))
    assert len([*slow]) == 5 and len(quick) == 3
    keys = [line["key"] for line in lines_of(path)[1:]]
    assert len(keys) == len(set(keys)) == 6


def test_a_failed_run_is_a_line_and_is_tried_again(tmp_path: Path) -> None:
    """The others are run; the failure says why and does not count as done."""
    plugin = save_plugin(tmp_path, "raise RuntimeError('out of luck')")
    data, out = save_stream(tmp_path / "a.npz"), tmp_path / "small.jsonl"
    file = save_experiment(
        tmp_path, f'orders = 1\n[[row]]\nmethod = "constant"\n[[row]]\nmethod = "tda"\n{FILES}'
    )
    words = ["--plugin", str(plugin), "bench", str(file), "--data", str(data)]
    for expected in (1, 2):
        done = CliRunner().invoke(main, [*words, "--workers", "1", "--results", str(out)])
        assert done.exit_code == 1, done.output
        assert "1 run failed: the same command tries it again." in done.stderr
        failures = [line for line in lines_of(out) if line.get("kind") == "failure"]
        assert len(failures) == expected and failures[0]["reason"] == "RuntimeError: out of luck"
        assert len([line for line in lines_of(out) if line.get("method") == "tda"]) == 1
    assert "failed: RuntimeError: out of luck" in done.output


def test_ctrl_c_says_what_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command ends with 130 and says how many runs are in the file."""
    file = save_experiment(tmp_path, f"orders = 1\n{ROWS}\n{FILES}")
    data = save_stream(tmp_path / "a.npz")
    whole = ledger.append
    keep: list[object] = []

    def append(path: Path, entry: Entry) -> None:
        if len(keep) == 2:
            raise KeyboardInterrupt
        keep.append(entry)
        whole(path, entry)

    monkeypatch.setattr(ledger, "append", append)
    out = tmp_path / "small.jsonl"
    words = ["bench", str(file), "--data", str(data), "--workers", "1", "--results", str(out)]
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 130
    assert "Stopped: 1 of 3 runs are kept" in done.output


def test_only_ray_has_an_address() -> None:
    """An address for processes of this machine is refused."""
    with pytest.raises(InputError, match="add --engine ray"):
        EngineOptions("processes", address="here:1")


def test_an_experiment_from_end_to_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two shifts are rendered, run in two processes, shown in tables and kept with a gallery."""
    monkeypatch.chdir(tmp_path)
    text = f'gallery = true\norders = 2\n{ROWS}[[setting]]\n[[setting]]\norder = "domains"\n'
    text += '[[data]]\nshapes = ["night", "fog"]\nimages = 40\nviews = 2\n'
    text += '[[data]]\ndatasets = ["dtd"]\nmodels = ["RN50"]\n'
    file = save_experiment(tmp_path, text)
    listed = CliRunner().invoke(main, ["bench", str(file), "--list"])
    assert "At most 18 runs." in listed.output and not (tmp_path / "build").exists()
    done = CliRunner().invoke(main, ["bench", str(file), "--workers", "2", "--quick"])
    assert done.exit_code == 0, done.output
    assert "shapes:night, then fog" in done.output and "crg encode dtd" in done.output
    lines = lines_of(tmp_path / "results" / "small-quick.jsonl")
    kinds = [line.get("kind", "run") for line in lines]
    assert kinds == ["experiment", *["run"] * 18, "gallery", "gallery"]
    assert {len(line["metrics"]["right_in_order"]) for line in lines[1:19]} == {10, 20}
    image = lines[-1]["images"][0]
    assert set(image["answers"]) == {"zero_shot", "tda", "crg"}
    assert len(set(image["answers"].values())) > 1
    again = CliRunner().invoke(main, ["bench", str(file), "--quick"])
    runs = lines_of(tmp_path / "results" / "small-quick.jsonl")
    assert again.exit_code == 0 and len(runs) == len(lines)  # nothing was run or written again


def test_only_chooses_sources_by_name(tmp_path: Path) -> None:
    """A part of a name is enough; a name that no source has is refused."""
    file = save_experiment(tmp_path, f'{ROWS}[[data]]\nshapes = ["night", "clean"]\n')
    listed = CliRunner().invoke(main, ["bench", str(file), "--list", "--only", "CLEAN"])
    assert "dataset shapes:clean (rendered)" in listed.output and "night" not in listed.output
    refused = CliRunner().invoke(main, ["bench", str(file), "--list", "--only", "rain"])
    assert refused.exit_code == 2 and "there is 'shapes:night:3', 'shapes:clean'." in refused.output


def test_a_method_joins_a_finished_experiment(tmp_path: Path) -> None:
    """It is run alone, stands beside what was measured before, and no other run is done again."""
    file = save_experiment(tmp_path, TWO_ORDERS)
    data, out = save_stream(tmp_path / "a.npz"), tmp_path / "small.jsonl"
    words = ["bench", str(file), "--data", str(data), "--workers", "1", "--results", str(out)]
    subset = CliRunner().invoke(main, [*words, "--methods", "tda"])
    assert subset.exit_code == 0 and "crg" not in subset.stdout, subset.output
    assert len(ledger.read(out).runs) == 4
    plugin = save_plugin(tmp_path)
    joined = CliRunner().invoke(
        main, [*words, "--methods", "constant,one=constant:answer=1", "--plugin", str(plugin)]
    )
    assert joined.exit_code == 0, joined.output
    assert len(ledger.read(out).runs) == 8
    outline = [e for e in ledger.read(out).entries.values() if isinstance(e, Outline)][-1]
    rows = [row.label for row in outline.rows]
    assert rows == ["zero_shot", "tda", "constant", "one"]
    whole = CliRunner().invoke(main, words)
    assert "leaves out the rows 'constant', 'one' from now on" in whole.stderr
    assert len(ledger.read(out).runs) == 10  # crg in two orders
