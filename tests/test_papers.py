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

import crg
from crg.datasets.catalog import catalogue
from crg.results.papers import AVERAGE, Reported, bundled_papers
from crg.results.schema import Source, Variant
from made_results import Book, share
from processes import called

DATA: dict[str, Any] = tomllib.loads(
    resources.files("crg.results").joinpath("papers.toml").read_text("utf-8")
)
PAPERS = bundled_papers()
NOTES = [*DATA["slip"], *DATA["protocol"]]
BEYOND = {"imagenet-r", "imagenet-sketch", AVERAGE}  # columns that are no datasets of ours
# rows that are no methods of ours
BESIDE = {"zero_shot_one_prompt", "freetta, simple form", "freetta, joint form"}


def entries() -> list[tuple[str, str, str, str]]:
    """Experiment, backbone, dataset and method of every number in the file."""
    return [entry for table in DATA["table"] for entry in cells_of(table)]


def cells_of(table: dict[str, Any]) -> Iterator[tuple[str, str, str, str]]:
    """Experiment, backbone, dataset and row of every number of one table."""
    for row in table["rows"]:
        for column in table["columns"]:
            yield table["experiment"], table["backbone"], column, row


def number(experiment: str, backbone: str, dataset: str, method: str, source: str) -> Reported:
    """An entry that the bundled file has, of the source that the heading of a column names."""
    found = PAPERS.numbers(experiment, backbone, dataset, method)
    return next(each for each in found if each.source == source)


@pytest.mark.parametrize(
    "name", ["ViT-B/16", "vit-b-16", "ViT-B-16:openai", "openclip:ViT-B-16", "openclip:vit-b/16"]
)
def test_backbones_are_known_by_their_spellings(name: str) -> None:
    """Case, slash, library prefix and the suffix of OpenAI's weights do not matter."""
    found = number("robustness", name, "imagenet", "coop", "CRG paper")
    assert found.value == 71.51 and "2503.18334" in found.citation


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
    assert PAPERS.numbers(*entry) == ()


def test_notes_stand_where_their_number_is_used() -> None:
    """Slips of the CRG paper, samples, and averages over other datasets; nowhere else."""
    entry = ("robustness", "RN50", "imagenet-v2", "coop")
    assert any("ImageNet-R accuracy" in note for note in number(*entry, "CRG paper").notes)
    right = number(*entry, "DPE paper")
    assert right.value == 55.40 and right.notes == ()
    food = number("cross_datasets", "RN50", "food101", "crg", "CRG paper")
    assert any("2,000" in note for note in food.notes) and any("64" in n for n in food.notes)
    mean = number("robustness", "RN50", AVERAGE, "difftpt", "DPE paper")
    assert all(any(word in note for note in mean.notes) for word in ("1,000", "five"))


def test_every_source_has_its_own_number_unless_it_repeats_one() -> None:
    """The paper and the public run side by side; what the DPE paper prints as well counts once."""
    found = PAPERS.numbers("cross_datasets", "ViT-B-16", "eurosat", "tda")
    assert [(each.source, each.value) for each in found] == [
        ("CRG paper", 58.00),
        ("public run", 53.33),
    ]
    names = ("mine", "zero_shot_one_prompt", "zero_shot")
    clip = PAPERS.numbers("cross_datasets", "ViT-B-16", "eurosat", *names)
    assert [each.value for each in clip] == [42.01, 48.43]
    assert "single prompt" in str(clip[0].notes) and "single prompt" not in str(clip[1].notes)


def test_the_paper_of_crg_is_there() -> None:
    """Its own row, and the rows of its ablation and sweeps, by the labels of our experiments."""
    found = number("robustness", "ViT-B/16", "imagenet", "crg", "CRG paper")
    assert found.value == 75.01 and "2,000" in found.notes[0]
    for name in ("ablation", "queue_size"):
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
    for table in DATA["table"]:
        assert table["source"] in DATA["sources"]
        for row in table["rows"].values():
            assert len(row) == len({*table["columns"]}) and all(0 <= each <= 100 for each in row)
    cells = [(*entry, table["source"]) for table in DATA["table"] for entry in cells_of(table)]
    assert len(set(cells)) == len(cells)
    assert all(PAPERS.numbers(*entry) for entry in entries())
    assert {column for _, _, column, _ in entries()} <= {*catalogue(), *BEYOND}
    compared = {row for e, _, _, row in entries() if e in ("robustness", "cross_datasets")}
    assert compared <= {*crg.list_methods(), *BESIDE}
    assert {experiment for experiment, *_ in entries()} <= {*PAPERS.experiments}


def test_every_note_concerns_something() -> None:
    """Notes are one sentence, with no key that is not read and no name that is in no table."""
    known = {"note", "source", "experiment", "backbone", "methods", "datasets"}
    _, backbones, columns, methods = map(set, zip(*entries(), strict=True))
    for note in NOTES:
        assert set(note) <= known and note["note"].endswith(".")
        assert note.get("source") in {*DATA["sources"], None}
        assert note.get("experiment") in {*PAPERS.experiments, None}
        assert note.get("backbone") in {*backbones, None}
        assert set(note.get("datasets", ())) <= columns
        assert set(note.get("methods", ())) <= methods


def test_the_command_shows_them_beside_the_measured_accuracy(tmp_path: Path) -> None:
    """They are columns of a table of their own, with papers and notes below."""
    source = Source("imagenet-a, ViT-B-16", dataset="imagenet-a", n_samples=200, n_classes=4,
                    n_views=1, model="ViT-B-16:openai", prompts=("a {}.", "one {}."))  # fmt: skip
    imagenet = msgspec.structs.replace(source, name="imagenet", dataset="imagenet")
    book = Book([Variant("crg", "crg")], sources=(source, imagenet), reported="robustness")
    for label in ("zero_shot", "crg"):
        book.add(label, share(120), base=share(100))
        book.add(label, share(120), base=share(100), source=1)
    results, out = book.write(tmp_path / "results.jsonl"), tmp_path / "tables.md"
    called("report", str(results), "--out", str(out))
    text = out.read_text("utf-8")
    assert "| 75.01* | -15.01 |" in text and "CRG paper: the CRG paper" in text
