"""The numbers that papers report."""

from __future__ import annotations

import statistics
import tomllib
from importlib import resources
from typing import Any

import pytest

import crg
from crg.datasets.catalog import catalogue
from crg.results.papers import AVERAGE, bundled_papers, known_experiments

DATA: dict[str, Any] = tomllib.loads(
    resources.files("crg.results").joinpath("papers.toml").read_text("utf-8")
)
PAPERS = bundled_papers()
NOTES = [*DATA["slip"], *DATA["protocol"], *DATA["statement"]]
BEYOND = {"imagenet-r", "imagenet-sketch", AVERAGE}  # columns that are no datasets of ours
BESIDE = {"zero_shot_one_prompt"}  # rows that are no methods of ours


def entries() -> list[tuple[str, str, str, str]]:
    """Experiment, backbone, dataset and method of every number in the file."""
    return [
        (table["experiment"], table["backbone"], column, method)
        for table in DATA["table"]
        for method in table["rows"]
        for column in table["columns"]
    ]


def test_a_number_comes_with_its_source() -> None:
    """An entry is found, as printed, with the paper it was read in."""
    found = PAPERS.number("cross_datasets", "RN50", "eurosat", "tda")
    assert found is not None and found.value == 42.11
    assert "DPE paper" in found.source and found.notes == ()


@pytest.mark.parametrize(
    "name", ["ViT-B/16", "vit-b-16", "ViT-B-16:openai", "openclip:ViT-B-16", "openclip:vit-b/16"]
)
def test_backbones_are_known_by_their_spellings(name: str) -> None:
    """Case, the stroke, and the naming of the library and of OpenAI's weights do not matter."""
    assert PAPERS.number("robustness", name, "imagenet", "dpe") == PAPERS.number(
        "robustness", "ViT-B-16", "imagenet", "dpe"
    )
    assert PAPERS.stated("robustness", name, "imagenet", "crg")


@pytest.mark.parametrize(
    "entry",
    [
        ("robustness", "ViT-B-16:laion2b", "imagenet", "tda"),
        ("robustness", "ViT-B-32", "imagenet", "tda"),
        ("robustness", "RN50", "dtd", "tda"),
        ("robustness", "RN50", "imagenet", "gda"),
        ("ablation", "RN50", "imagenet", "crg"),
    ],
)
def test_what_is_not_known_is_none(entry: tuple[str, str, str, str]) -> None:
    """Other weights, datasets, methods and experiments have no number."""
    assert PAPERS.number(*entry) is None


def test_slips_of_the_paper_are_reported() -> None:
    """What the CRG paper has wrong is said at the entry it has wrong, and at no other."""
    wrong = PAPERS.number("robustness", "RN50", "imagenet-v2", "coop")
    right = PAPERS.number("robustness", "RN50", "imagenet-v2", "tpt")
    assert wrong is not None and right is not None
    assert any("ImageNet-R accuracy" in note for note in wrong.notes)
    assert not any("ImageNet-R accuracy" in note for note in right.notes)


def test_protocols_are_reported() -> None:
    """An entry on a sample, and an average over more datasets than ours, say so."""
    food = PAPERS.number("cross_datasets", "RN50", "food101", "dpe")
    mean = PAPERS.average("robustness", "RN50", "difftpt")
    assert food is not None and mean is not None
    assert any("2,000" in note for note in food.notes)
    assert all(any(word in note for note in mean.notes) for word in ("2,000", "1,000", "five"))


def test_a_number_that_is_not_at_hand_is_not_made_up() -> None:
    """Of CRG on ImageNet a gain is stated, and no accuracy given."""
    assert PAPERS.number("robustness", "RN50", "imagenet", "crg") is None
    (sentence,) = PAPERS.stated("robustness", "RN50:openai", "imagenet", "crg")
    assert "1.85" in sentence and "arxivlens" in sentence
    assert PAPERS.stated("robustness", "RN50", "imagenet-a", "crg") == ()


def test_only_averages_noted_as_slips_do_not_follow() -> None:
    """Every printed average is the mean of its row, but for exactly those that a slip names."""
    slips = {
        (slip["paper"], slip.get("experiment"), slip["backbone"], method)
        for slip in DATA["slip"]
        if slip["datasets"] == [AVERAGE] and slip["paper"] in DATA["sources"]
        for method in slip["methods"]
    }
    wrong = {
        (table["source"], table["experiment"], table["backbone"], method)
        for table in DATA["table"]
        if table["columns"][-1] == AVERAGE
        for method, (*row, average) in table["rows"].items()
        if abs(statistics.fmean(row) - average) > 0.02
    }
    assert wrong == slips and len(wrong) == 2


def test_the_tables_are_whole() -> None:
    """Each row has a percentage per column, each table a source, and no entry is there twice."""
    for table in DATA["table"]:
        assert table["source"] in DATA["sources"]
        for row in table["rows"].values():
            assert len(row) == len(table["columns"]) and all(0 < value < 100 for value in row)
    assert len(set(entries())) == len(entries())
    assert all(PAPERS.number(*entry) is not None for entry in entries())


def test_names_are_ours() -> None:
    """Datasets are of the catalogue, methods of the registry, but for the few named here."""
    assert {column for _, _, column, _ in entries()} <= {*catalogue(), *BEYOND}
    assert {method for *_, method in entries()} <= {*crg.list_methods(), *BESIDE}
    assert {experiment for experiment, *_ in entries()} <= set(known_experiments())


def test_every_note_concerns_something() -> None:
    """Notes are one sentence, with no key that is not read and no name that is in no table."""
    known = {"note", "paper", "source", "experiment", "backbone", "methods", "datasets"}
    experiments, backbones, columns, methods = map(set, zip(*entries(), strict=True))
    for note in NOTES:
        assert set(note) <= known and note["note"].endswith(".")
        assert note.get("experiment") in {*experiments, None}
        assert note.get("backbone") in {*backbones, None}
        assert set(note.get("datasets", ())) <= columns
        assert set(note.get("methods", ())) <= {*methods, "crg"}  # whose rows are missing
