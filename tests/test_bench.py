"""``crg bench`` with data, methods and results files that are not as they should be."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from crg.cli import main
from made_experiments import FILES, ROWS, lines_of, save_experiment
from made_files import save_plugin, save_raw, save_stream

SMALL = f"orders = 1\n[[row]]\nmethod = 'tda'\n{FILES}"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Results go to a folder of the test."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CRG_DATA", raising=False)


def _bench(text: str, *words: str, before: tuple[str, ...] = ()) -> Result:
    file = save_experiment(Path(), text)
    return CliRunner().invoke(main, [*before, "bench", str(file), "--workers", "1", *words])


def test_a_method_that_ends_its_process_is_a_red_row() -> None:
    """Even with one worker the others are run; the exit code of the process is in the reason."""
    plugin = save_plugin(Path(), "os._exit(7)")
    save_stream(Path("a.npz"))
    text = f"orders = 1\n[[row]]\nmethod = 'constant'\n{ROWS}{FILES}"
    done = _bench(text, "--data", "a.npz", before=("--plugin", str(plugin)))
    assert done.exit_code == 1, done.output
    assert "ended with exit code 7" in done.stdout
    assert done.stderr.rstrip().endswith("1 run failed: the same command tries it again.")
    methods = [line["method"] for line in lines_of(Path("results/small.jsonl")) if "method" in line]
    assert sorted(methods) == ["crg", "tda", "zero_shot"]


@pytest.mark.parametrize("words", [(), ("--data", "nothing"), ("--only", "a")])
def test_no_data_at_all_is_reported(words: tuple[str, ...]) -> None:
    """Without data, or with an empty folder, the remedy is --data."""
    Path("nothing").mkdir()
    done = _bench(SMALL, *words)
    assert done.exit_code == 2
    assert "No data was found: name feature files, stores or folders" in done.stderr
    assert ("there is nothing in nothing" in done.stderr) == ("--data" in words)


def test_a_folder_may_hold_what_cannot_be_used() -> None:
    """Each such file is a note, the rest is run, and only what was chosen is read."""
    Path("data").mkdir()
    save_stream(Path("data/good.npz"))
    Path("data/empty.npz").touch()
    save_raw(Path("data/bad.npz"), image_features=np.full((12, 8), np.nan))
    done = _bench(SMALL, "--data", "data")
    assert done.exit_code == 0, done.output
    assert "Note: data/empty.npz is empty" in done.stderr
    assert "Note: data/bad.npz: " in done.stderr and "bad: data/bad.npz: " in done.stdout
    chosen = _bench(SMALL, "--data", "data", "--only", "GOOD", "--results", "other.jsonl")
    assert chosen.exit_code == 0 and "bad" not in chosen.output and "empty" not in chosen.output
    refused = _bench(SMALL, "--data", "data/bad.npz", "--data", "data/good.npz")
    assert refused.exit_code == 2 and "data/bad.npz: " in refused.stderr


def test_what_a_report_no_longer_shows_is_reported() -> None:
    """Fewer orders and fewer sources than the results file holds are notes; more are none."""
    for name in ("one", "two"):
        save_stream(Path(f"{name}.npz"), seed=len(name))
    data = ("--data", "one.npz", "--data", "two.npz")
    assert "from now on" not in _bench(SMALL, *data, "--orders", "3").stderr
    fewer = _bench(SMALL, *data, "--orders", "2", "--only", "one")
    assert "holds 3 orders, of which its report shows 2 from now on" in fewer.stderr
    assert "leaves out 'two' from now on" in fewer.stderr
    assert "from now on" not in _bench(SMALL, *data, "--orders", "3").stderr


def test_options_for_a_source_that_is_not_there_are_reported() -> None:
    """A name that neither the catalogue nor a file has is a note; one that a file has is none."""
    text = "[[row]]\nmethod = 'tda'\nper_dataset = { dtdx = {}, mine = {}, dtd = {} }\n"
    save_stream(Path("mine.npz"))
    listed = _bench(text + FILES, "--data", "mine.npz", "--list")
    assert "the row 'tda' has options for 'dtdx', and no source is called so." in listed.stderr
    assert listed.stderr.count("has options for") == 1


def _cut(path: Path) -> str:
    path.write_text(path.read_text()[:-100])
    return "is truncated or not ours."


def _altered(path: Path) -> str:
    lines = lines_of(path)
    lines[2]["metrics"]["accuracy"] += 0.25
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return "gives an accuracy of"


@pytest.mark.parametrize("damage", [_cut, _altered])
def test_damaged_lines_are_reported_and_run_again(damage: Callable[[Path], str]) -> None:
    """A line that was cut off, or whose accuracy somebody changed, is left out with a note."""
    save_stream(Path("a.npz"))
    whole, path = _bench(SMALL, "--data", "a.npz"), Path("results/small.jsonl")
    assert "was left out" not in whole.stderr
    why = damage(path)
    again = _bench(SMALL, "--data", "a.npz")
    assert f"Line 3 of {path} was left out: it {why}" in again.stderr
    assert again.exit_code == 0 and again.stdout == whole.stdout
    assert "1 of 1 runs" in again.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--folder", "/dev/null/zz"), "choose another folder with --folder."),
        (("--results", "/dev/null/zz/r.jsonl"), "choose another folder with --results."),
    ],
)
def test_places_that_cannot_be_written_are_one_sentence(words: tuple[str, str], said: str) -> None:
    """The option of crg bench that names another place is the remedy, and no other option."""
    done = _bench(f"{ROWS}[[data]]\nshapes = ['night']\nimages = 32\n", *words)
    assert done.exit_code == 2 and done.stderr.count("\n") <= 2, done.output
    assert done.stderr.rstrip().endswith(said) and "--no-results" not in done.stderr


def test_remarks_have_a_column_only_where_there_are_some() -> None:
    """A table in which every row was measured has three columns, another one a fourth."""
    save_stream(Path("a.npz"))
    assert "remarks" not in _bench(SMALL, "--data", "a.npz").stdout
    more = _bench(f"orders = 1\n[[row]]\nmethod = 'gda'\n{FILES}", "--data", "a.npz")
    assert "remarks" in more.stdout and "few_features" in more.stdout
