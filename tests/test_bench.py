"""``crg bench``: nothing is run twice or lost, and what is not as it should be ends nothing."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from click.testing import Result

from crg.bench.run import EngineOptions, append_new, run_specs
from crg.results import ledger
from crg.results.schema import Outline
from made_experiments import FILES, ROWS, lines_of, planned, save_experiment
from made_files import save_plugin, save_raw, save_stream
from processes import called

SMALL = f"orders = 1\n[[row]]\nmethod = 'tda'\n{FILES}"
TWO_ORDERS = f"orders = 2\n{ROWS}\n{FILES}"
RESULTS = Path("results", "small.jsonl")


@pytest.fixture(autouse=True)
def stream(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Results go to a folder of the test, in which there is a stream."""
    monkeypatch.delenv("CRG_DATA", raising=False)
    save_stream(Path("a.npz"))
    RESULTS.parent.mkdir()


def _bench(text: str, *words: str, before: tuple[str, ...] = (), code: int = 0) -> Result:
    file = save_experiment(Path(), text)
    return called(*before, "bench", str(file), "--workers", "1", *words, code=code)


def _finish(folder: Path, text: str = TWO_ORDERS) -> int:
    """Do what is left to run, and count it."""
    made, known = planned(folder, text), ledger.read(RESULTS)
    append_new(known, made.outline)
    left = [spec for spec in made.specs if spec.key not in known.runs]
    return len(list(run_specs(left, known, EngineOptions(workers=1))))


def test_only_what_is_missing_is_run(tmp_path: Path) -> None:
    """The outline comes first; a second call runs nothing; what is lost or new runs alone."""
    assert _finish(tmp_path) == 6
    first, *runs = lines_of(RESULTS)
    assert first["kind"] == "experiment"
    assert {cell["key"] for cell in first["cells"]} == {run["key"] for run in runs}
    assert _finish(tmp_path) == 0 and len(lines_of(RESULTS)) == 7
    RESULTS.write_text("\n".join(RESULTS.read_text().splitlines()[:-1]) + "\n")
    assert _finish(tmp_path) == 1
    more = f'orders = 2\n{ROWS}[[row]]\nmethod = "dpe"\n{FILES}'
    assert _finish(tmp_path, more) == 2
    assert [line.get("kind") for line in lines_of(RESULTS)].count("experiment") == 2
    assert _finish(tmp_path, more.replace("orders = 2", "orders = 3")) == 4


@pytest.mark.parametrize(
    ("body", "why"),
    [("raise RuntimeError('luck')", "RuntimeError: luck"), ("os._exit(7)", "exit code 7, which")],
)
def test_a_failed_run_is_a_line_and_is_tried_again(body: str, why: str) -> None:
    """A method that raises, or ends its process, ends no other run and does not count as done."""
    plugin = save_plugin(Path(), body)
    text = f"orders = 1\n[[row]]\nmethod = 'constant'\n[[row]]\nmethod = 'tda'\n{FILES}"
    for expected in (1, 2):
        done = _bench(text, "--data", "a.npz", before=("--plugin", str(plugin)), code=1)
        assert done.stderr.rstrip().endswith("1 run failed: the same command tries it again.")
        failures = [line for line in lines_of(RESULTS) if line.get("kind") == "failure"]
        assert len(failures) == expected and why in failures[0]["reason"]
        assert len([line for line in lines_of(RESULTS) if line.get("method") == "tda"]) == 1
    assert "remarks" in done.stdout and "failed: " in done.output and why in done.output


def test_an_experiment_from_end_to_end() -> None:
    """Two shifts are rendered, run in two processes, shown in tables and kept with a gallery."""
    text = f'gallery = true\norders = 2\n{ROWS}[[setting]]\n[[setting]]\norder = "domains"\n'
    text += '[[data]]\nshapes = ["night", "fog"]\nimages = 40\nviews = 2\n'
    text += '[[data]]\ndatasets = ["dtd"]\nmodels = ["RN50"]\n'
    assert "At most 18 runs." in _bench(text, "--list").output and not Path("build").exists()
    done = _bench(text, "--workers", "2", "--quick")
    assert "shapes:night, then fog" in done.output and "crg encode dtd" in done.output
    lines = lines_of(Path("results", "small-quick.jsonl"))
    kinds = [line.get("kind", "run") for line in lines]
    assert kinds == ["experiment", *["run"] * 18, "gallery", "gallery"]
    assert {len(line["metrics"]["right_in_order"]) for line in lines[1:19]} == {10, 20}
    answers = lines[-1]["images"][0]["answers"]
    assert set(answers) == {"zero_shot", "tda", "crg"} and len(set(answers.values())) > 1
    _bench(text, "--quick")  # nothing is run or written again
    assert lines_of(Path("results", "small-quick.jsonl")) == lines


def test_a_method_joins_a_finished_experiment() -> None:
    """It is run alone, stands beside what was measured before, and no other run is done again."""
    assert "crg" not in _bench(TWO_ORDERS, "--data", "a.npz", "--methods", "tda").stdout
    assert len(ledger.read(RESULTS).runs) == 4
    new = ("--methods", "constant,one=constant:answer=1", "--plugin", str(save_plugin(Path())))
    _bench(TWO_ORDERS, "--data", "a.npz", *new)
    known = ledger.read(RESULTS)
    outline = [each for each in known.entries.values() if isinstance(each, Outline)][-1]
    assert [row.label for row in outline.rows] == ["zero_shot", "tda", "constant", "one"]
    _bench(TWO_ORDERS, "--data", "a.npz")
    assert (len(known.runs), len(ledger.read(RESULTS).runs)) == (8, 10)  # crg in two orders


@pytest.mark.parametrize("words", [(), ("--data", "nothing"), ("--only", "a")])
def test_no_data_at_all_is_reported(words: tuple[str, ...]) -> None:
    """Without data, or with an empty folder, the remedy is --data."""
    Path("nothing").mkdir()
    said = _bench(SMALL, *words, code=2).stderr
    assert "No data was found: name feature files, stores or folders" in said
    assert ("nothing holds no feature file" in said) == ("--data" in words)


def test_a_folder_may_hold_what_cannot_be_used() -> None:
    """Each such file is a note, the rest is run, and only what was chosen is read."""
    Path("data").mkdir()
    save_stream(Path("data/good.npz"))
    Path("data/empty.npz").touch()
    save_raw(Path("data/bad.npz"), image_features=np.full((12, 8), np.nan))
    done = _bench(SMALL, "--data", "data")
    assert "Note: data/empty.npz is empty" in done.stderr
    assert "Note: data/bad.npz: " in done.stderr and "bad: data/bad.npz: " in done.stdout
    chosen = _bench(SMALL, "--data", "data", "--only", "GOOD", "--results", "other.jsonl")
    assert "bad" not in chosen.output and "empty" not in chosen.output
    refused = _bench(SMALL, "--data", "data/bad.npz", "--data", "data/good.npz", code=2)
    assert "data/bad.npz: " in refused.stderr


def test_damaged_lines_are_reported_and_run_again() -> None:
    """A line that was cut off is left out with a note."""
    whole = _bench(SMALL, "--data", "a.npz")
    assert "was left out" not in whole.stderr and "remarks" not in whole.stdout
    RESULTS.write_text(RESULTS.read_text()[:-100])
    again = _bench(SMALL, "--data", "a.npz")
    assert f"Line 3 of {RESULTS} was left out: it is truncated" in again.stderr
    assert again.stdout == whole.stdout and "1 of 1 runs" in again.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--address", "here:1"), "add --engine ray or leave it out."),
        (("--folder", "/dev/null/zz"), "choose another folder with --folder."),
        (("--results", "/dev/null/zz/r.jsonl"), "choose another folder with --results."),
        (("--list", "--only", "rain"), "has 'rain' in its name: there is 'shapes:night:3'."),
    ],
)
def test_options_that_cannot_be_used_are_one_sentence(words: tuple[str, str], said: str) -> None:
    """The option of crg bench that helps is the remedy, and no other option."""
    done = _bench(f"{ROWS}[[data]]\nshapes = ['night']\nimages = 32\n", *words, code=2)
    assert done.stderr.count("\n") <= 2 and done.stderr.rstrip().endswith(said), done.output
