"""The numbers that papers report."""

from __future__ import annotations

import statistics
import tomllib
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

import crg
from crg.cli import main
from crg.datasets.catalog import catalogue
from crg.results.papers import (
    AVERAGE,
    Papers,
    Reported,
    _faults,
    bundled_papers,
    known_experiments,
    with_papers,
)
from crg.results.schema import Source, Variant
from made_results import Book, share
from sentences import refused_in_one_sentence

DATA: dict[str, Any] = tomllib.loads(
    resources.files("crg.results").joinpath("papers.toml").read_text("utf-8")
)
PAPERS = bundled_papers()
NOTES = [*DATA["slip"], *DATA["protocol"]]
BEYOND = {"imagenet-r", "imagenet-sketch", AVERAGE}  # columns that are no datasets of ours
BESIDE = {"zero_shot_one_prompt"}  # rows that are no methods of ours


def entries() -> list[tuple[str, str, str, str]]:
    """Experiment, backbone, dataset and method of every number in the file."""
    return [entry for table in DATA["table"] for entry in cells_of(table)]


def cells_of(table: dict[str, Any]) -> Iterator[tuple[str, str, str, str]]:
    """Experiment, backbone, dataset and row of every number of one table."""
    for row in table["rows"]:
        for column in table["columns"]:
            yield table["experiment"], table["backbone"], column, row


def number(experiment: str, backbone: str, dataset: str, method: str) -> Reported:
    """An entry that the bundled file has."""
    found = PAPERS.number(experiment, backbone, dataset, method)
    assert found is not None
    return found


@pytest.mark.parametrize(
    "name", ["ViT-B/16", "vit-b-16", "ViT-B-16:openai", "openclip:ViT-B-16", "openclip:vit-b/16"]
)
def test_backbones_are_known_by_their_spellings(name: str) -> None:
    """Case, slash, library prefix and the suffix of OpenAI's weights do not matter."""
    found = number("robustness", name, "imagenet", "dpe")
    assert found.value == 71.91 and "DPE paper" in found.source and found.notes == ()


@pytest.mark.parametrize(
    "entry",
    [
        ("robustness", "ViT-B-16:laion2b", "imagenet", "tda"),
        ("robustness", "ViT-B-32", "imagenet", "tda"),
        ("robustness", "RN50", "dtd", "tda"),
        ("robustness", "RN50", "imagenet", "gda"),
        ("ablation", "RN50", "imagenet", "all (crg)"),
        ("cache_error", "RN50", "imagenet", "tda"),
    ],
)
def test_entries_that_no_paper_prints_are_none(entry: tuple[str, str, str, str]) -> None:
    """Other weights, datasets, methods and experiments have no number."""
    assert PAPERS.number(*entry) is None


def test_notes_stand_where_their_number_is_used() -> None:
    """Slips of the CRG paper, samples, and averages over other datasets; nowhere else."""
    [file] = PAPERS.files
    tables = tuple(each for each in file.table if "CRG paper" in file.sources[each.source])
    entry = ("robustness", "RN50", "imagenet-v2", "coop")
    wrong = Papers(msgspec.structs.replace(file, table=tables)).number(*entry)
    assert wrong is not None and any("ImageNet-R accuracy" in note for note in wrong.notes)
    assert number(*entry).value == 55.40 and number(*entry).notes == ()
    food = number("cross_datasets", "RN50", "food101", "crg")
    assert any("2,000" in note for note in food.notes)
    mean = number("robustness", "RN50", AVERAGE, "difftpt")
    assert all(any(word in note for note in mean.notes) for word in ("1,000", "five"))


def test_the_paper_of_crg_is_there() -> None:
    """Its own row, and the rows of its ablation and sweeps, by the labels of our experiments."""
    found = number("robustness", "ViT-B/16", "imagenet", "crg")
    assert found.value == 75.01 and "2,000" in found.notes[0]
    for name in ("ablation", "queue_size", "weights"):
        rows = {label for e, _, _, label in entries() if e == name}
        design = tomllib.loads((Path("experiments") / f"{name}.toml").read_text("utf-8"))
        assert rows <= {row.get("label") for row in design["row"]}


def test_only_averages_noted_as_slips_do_not_follow() -> None:
    """Every printed average is the mean of its row, but for exactly those that a slip names."""
    slips = {
        (slip["source"], slip.get("experiment"), slip["backbone"], method)
        for slip in DATA["slip"]
        if slip["datasets"] == [AVERAGE]
        for method in slip["methods"]
    }
    wrong = {
        (table["source"], table["experiment"], table["backbone"], method)
        for table in DATA["table"]
        if table["columns"][-1] == AVERAGE
        for method, (*row, average) in table["rows"].items()
        if abs(statistics.fmean(row) - average) > 0.02
    }
    assert wrong == slips and len(wrong) == 6


def test_the_tables_are_complete_and_names_are_ours() -> None:
    """No entry is there twice, and datasets and methods are ours but for the few named here."""
    [bundled] = PAPERS.files
    assert list(_faults(bundled)) == []
    cells = [(*entry, table["source"]) for table in DATA["table"] for entry in cells_of(table)]
    assert len(set(cells)) == len(cells)
    assert all(PAPERS.number(*entry) is not None for entry in entries())
    assert {column for _, _, column, _ in entries()} <= {*catalogue(), *BEYOND}
    compared = {row for e, _, _, row in entries() if e in ("robustness", "cross_datasets")}
    assert compared <= {*crg.list_methods(), *BESIDE}
    assert {experiment for experiment, *_ in entries()} <= set(known_experiments())


def test_every_note_concerns_something() -> None:
    """Notes are one sentence, with no key that is not read and no name that is in no table."""
    known = {"note", "source", "experiment", "backbone", "methods", "datasets"}
    _, backbones, columns, methods = map(set, zip(*entries(), strict=True))
    for note in NOTES:
        assert set(note) <= known and note["note"].endswith(".")
        assert note.get("experiment") in {*known_experiments(), None}
        assert note.get("backbone") in {*backbones, None}
        assert set(note.get("datasets", ())) <= columns
        assert set(note.get("methods", ())) <= methods


OWN = """
[sources]
mine = "my own paper"

[[table]]
experiment = "robustness"
backbone = "ViT-B/16"
source = "mine"
columns = ["imagenet-a", "average"]
[table.rows]
crg = [64.5, 70]
tda = [60.0, 65.0]

[[protocol]]
source = "mine"
note = "Tested on Sundays."

[[slip]]
source = "mine"
methods = ["tda"]
note = "Rounded."
"""


def own(folder: Path, text: str = OWN) -> Path:
    """A file of papers' numbers."""
    path = folder / "papers.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_users_numbers_come_first(tmp_path: Path) -> None:
    """They are found by any spelling of the backbone, win over bundled ones, and keep notes."""
    papers = with_papers(own(tmp_path))
    crg, tda = (papers.number("robustness", "ViT-B-16:openai", "imagenet-a", m)
                for m in ("crg", "tda"))  # fmt: skip
    assert crg is not None and (crg.value, crg.source) == (64.5, "my own paper")
    assert crg.notes == ("Tested on Sundays.",)
    assert tda is not None and tda.value == 60.0
    assert tda.notes == ("Rounded.", "Tested on Sundays.")
    other = papers.number("robustness", "RN50", "imagenet-a", "dpe")
    assert other == bundled_papers().number("robustness", "RN50", "imagenet-a", "dpe")


def test_the_command_shows_them_beside_the_measured_accuracy(tmp_path: Path) -> None:
    """``--reported`` adds a column, with the paper and its notes below."""
    source = Source("imagenet-a, ViT-B-16", dataset="imagenet-a", n_samples=200, n_classes=4,
                    n_views=1, model="ViT-B-16:openai", prompts=("a {}.", "one {}."))  # fmt: skip
    imagenet = msgspec.structs.replace(source, name="imagenet", dataset="imagenet")
    book = Book([Variant("crg", "crg")], sources=(source, imagenet), reported="robustness")
    for label in ("zero_shot", "crg"):
        book.add(label, share(120), base=share(100))
        book.add(label, share(120), base=share(100), source=1)
    results, out = book.write(tmp_path / "results.jsonl"), tmp_path / "tables.md"
    words = ["report", str(results), "--reported", str(own(tmp_path)), "--markdown", str(out)]
    assert CliRunner().invoke(main, words).exit_code == 0
    text = out.read_text("utf-8")
    assert "| 64.50* |" in text and "In papers: my own paper." in text
    assert "* Tested on Sundays." in text
    assert "75.01" in text and "the CRG paper" in text


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("", "it has no numbers: write them below [[table]]"),
        ("table = 3", "Expected `array`, got `int` - at `$.table`"),
        (OWN.replace('"robustness"', '"robust"'), "experiment is 'robust': choose one of"),
        (OWN.replace('source = "mine"\ncolumns', 'source = "its"\ncolumns'), "source is 'its'"),
        (OWN.replace("[64.5, 70]", "[64.5]"), "crg has 1 numbers: give 2"),
        (OWN.replace("[64.5, 70]", "[64.5, nan]"), "at `$.table[0].rows[...][1]`"),
        (OWN.replace("[64.5, 70]", "[64.5, true]"), "got `bool`"),
        (OWN.replace("[64.5, 70]", "[64.5, 645]"), "`float` <= 100"),
        (OWN.replace('"imagenet-a", "average"', '"dtd", "dtd"'), "name each dataset once"),
        (OWN.replace('note = "Rounded."', 'noted = "Rounded."'), "`$.slip[0]`"),
        (OWN.replace('methods = ["tda"]', 'methods = "tda"'), "at `$.slip[0].methods`"),
        (OWN.replace('note = "Rounded."', 'note = "Rounded."\npages = 3'), "unknown field `pages`"),
        (OWN.replace("[[slip]]", "[slip"), "is not valid"),
    ],
)
def test_mistakes_are_one_sentence(tmp_path: Path, wrong: str, said: str) -> None:
    """Each mistake is reported with its place, before any results are read."""
    path = own(tmp_path, wrong)
    with refused_in_one_sentence(said, str(path)):
        with_papers(path)
    with refused_in_one_sentence("no.toml cannot be read"):
        with_papers(tmp_path / "no.toml")


def test_the_file_in_the_documents_can_be_used(tmp_path: Path) -> None:
    """The example is read as it stands, and its numbers are found."""
    document = Path(__file__).parents[1].joinpath("docs", "benchmark.md").read_text("utf-8")
    example = document.split("## Numbers of other papers")[1].split("```toml\n")[1].split("```")[0]
    found = with_papers(own(tmp_path, example)).number("robustness", "ViT-B-16", "imagenet", "crg")
    assert found is not None and found.source in example
    assert f"[{found.value}," in example and found.notes[0] in example
