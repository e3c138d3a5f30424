"""The plan of an experiment: which cells there are, which run, and which do not and why."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crg.bench.design import read_design
from crg.bench.plan import count_runs, plan
from crg.bench.sources import find_sources
from crg.results.schema import Cell, Outline, decode, encode
from crg.streams import Scenario
from made_experiments import FILES, ROWS, planned, save_experiment
from made_files import raw_values, save_raw, save_stream

GDA = "[[row]]\nmethod = 'gda'\n"
FEW = {"few_features": raw_values()["image_features"][:6], "few_labels": np.arange(6) % 3}


def _data(folder: Path, *names: str) -> Path:
    """The folder of the data, with some streams."""
    (folder / "data").mkdir()
    for name in names:
        save_stream(folder / "data" / f"{name}.npz", seed=len(name))
    return folder / "data"


def _cells(outline: Outline, label: str) -> list[Cell]:
    return [cell for cell in outline.cells if outline.rows[cell.row].label == label]


def _reasons(outline: Outline, label: str) -> list[str]:
    return sorted({cell.reason for cell in _cells(outline, label) if cell.reason})


def test_every_row_has_a_cell_for_every_order(tmp_path: Path) -> None:
    """Zero-shot is among the rows, every cell has a key, every key a run, and data has facts."""
    save_raw(_data(tmp_path) / "dtd.npz", text_kind="simulated")
    made = planned(tmp_path)
    assert [row.label for row in made.outline.rows] == ["zero_shot", "tda", "crg"]
    assert Counter(cell.seed for cell in made.outline.cells) == dict.fromkeys(range(5), 3)
    assert {cell.key for cell in made.outline.cells} == {each.key for each in made.specs}
    assert decode(encode(made.outline)) == made.outline
    [source] = made.outline.sources
    assert (source.name, source.dataset, source.text_kind) == ("dtd", "dtd", "simulated")
    assert (source.n_samples, source.n_classes, source.n_views) == (12, 3, 1)
    assert len(source.sha256) == 64 and source.missing is None


SHOTS = "[[row]]\nlabel = '{0}'\nmethod = 'tip_adapter'\noptions = {{ shots = {0} }}\n"
VIEWS = "method = 'zero_shot'\nseveral_views = true\noptions = { predict_on = 'confident' }\n"
CLEAN = "[[data]]\nshapes = ['clean']\nimages = 4\nviews = 1\n"


@pytest.mark.parametrize(
    ("label", "text", "changes", "why"),
    [
        ("gda", f"{GDA}{FILES}", {}, "few_features and few_labels to mine"),
        ("crg", f"{ROWS}{FILES}", {"labels": None}, "mine has no labels: store them in"),
        ("gda", GDA + CLEAN, {}, "ask for shots beside the shapes in [[data]]."),
        ("3", f"{SHOTS.format(3)}{FILES}", FEW, "mine has at most 2 labelled images per class"),
        ("2", f"{SHOTS.format(2)}{FILES}", FEW, None),
        ("views", f"[[row]]\nlabel = 'views'\n{VIEWS}{FILES}", {}, "one view per image"),
    ],
)
def test_what_a_method_lacks_is_the_reason_why_it_is_not_run(
    tmp_path: Path, label: str, text: str, changes: dict[str, Any], why: str | None
) -> None:
    """Labels, labelled images, as many of them as the row asks for, and several views."""
    save_raw(_data(tmp_path) / "mine.npz", **changes)
    outline = planned(tmp_path, text).outline
    reasons = _reasons(outline, label)
    assert why in reasons[0] if why else reasons == []
    assert all((cell.key is None) == (why is not None) for cell in _cells(outline, label))
    assert label != "gda" or outline.rows[1].needs == ("labelled images",)


def test_methods_that_forget_run_in_one_order(tmp_path: Path) -> None:
    """Unless the seed decides which images come; zero-shot runs in every order."""
    save_raw(_data(tmp_path) / "few.npz", **FEW)
    settings = "".join(
        f'[[setting]]\norder = "{order}"\n' for order in ("by_class", "out_of_distribution")
    )
    outline = planned(tmp_path, f'[[row]]\nmethod = "gda"\n{settings}{FILES}').outline
    assert Counter(cell.setting for cell in _cells(outline, "gda")) == {0: 1, 1: 5}
    assert Counter(cell.setting for cell in _cells(outline, "zero_shot")) == {0: 5, 1: 5}


def test_luck_in_training_is_part_of_the_spread(tmp_path: Path) -> None:
    """A method that trains with a seed runs with one per order, unless the row sets the seed."""
    text = '[[row]]\nmethod = "coop"\n[[row]]\nlabel = "same luck"\nmethod = "coop"\n'
    text += 'options = { seed = 3 }\n[[data]]\nshapes = ["fog"]\nimages = 6\nviews = 2\nshots = 1\n'
    made = planned(tmp_path, text)
    specs = {each.key: each for each in made.specs}
    open_seed, same_luck = (
        [specs[str(cell.key)] for cell in _cells(made.outline, label)]
        for label in ("coop", "same luck")
    )
    assert [(spec.seed, spec.given["seed"]) for spec in open_seed] == [(n, n) for n in range(5)]
    assert [(spec.seed, spec.given["seed"]) for spec in same_luck] == [(0, 3)]


def test_presets_hold_for_their_dataset_and_are_marked(tmp_path: Path) -> None:
    """The file called dtd has a published preset; rows of presets, or that say so, are tuned."""
    _data(tmp_path, "dtd", "mine")
    made = planned(tmp_path, f'[[row]]\nmethod = "tda"\npreset = "published"\n{FILES}')
    assert _reasons(made.outline, "tda") == ["There is no published preset of tda for mine."]
    [options] = {tuple(each.given.items()) for each in made.specs if each.method == "tda"}
    assert dict(options) == {"positive_weight": 2.0, "positive_sharpness": 3.0}
    other = planned(tmp_path, f'[[row]]\nmethod = "tda"\ntuned = true\n{FILES}')
    for outline in (made.outline, other.outline):
        assert [row.tuned for row in outline.rows] == [False, True]


def test_domains_run_on_sequences_and_all_else_on_single_sources(tmp_path: Path) -> None:
    """There is no cell for any other pair, and the run knows the files that follow."""
    _data(tmp_path, "one", "other")
    settings = "[[setting]]\n" + '[[setting]]\norder = "domains"\n'
    made = planned(tmp_path, ROWS + settings + FILES)
    pairs = {(cell.source, cell.setting) for cell in made.outline.cells}
    assert pairs == {(0, 0), (1, 0), (2, 1)}
    sequence = next(each for each in made.specs if each.then)
    assert sequence.scenario == Scenario("domains")
    assert made.outline.sources[2].n_samples == 80


def test_equal_cells_are_one_run(tmp_path: Path) -> None:
    """Rows of the same options share their runs; settings do not. Memory is measured once."""
    rows = '[[row]]\nmethod = "crg"\n[[row]]\nlabel = "M = 12"\nmethod = "crg"\n'
    rows += "options = { queue_size = 12 }\n"
    assert len(planned(tmp_path, rows + FILES).specs) == 10
    settings = "".join(f'[[setting]]\nlabel = "{q}"\nmislabelled = {q}\n' for q in (0.0, 0.5))
    made = planned(tmp_path, "memory = true\n" + rows + settings + FILES)
    assert len(made.specs) == 20
    measured = [(each.method, each.seed) for each in made.specs if each.memory]
    assert measured == [("zero_shot", 0), ("crg", 0)]  # of the first order and setting


def test_shapes_are_rendered_once(tmp_path: Path) -> None:
    """Labelled images and stand-ins for generated views are there for those who need them."""
    text = '[[row]]\nmethod = "difftpt"\n[[row]]\nmethod = "gda"\n[[data]]\nshapes = ["fog"]\n'
    text += "images = 6\nviews = 2\nshots = 1\ngenerated = 2\n"
    design = read_design(save_experiment(tmp_path, text))
    sources = find_sources(design, (), tmp_path)
    said: list[str] = []
    first = plan(design, sources, tmp_path, on_encoding=lambda name, now: said.append(name))
    [source] = first.outline.sources
    assert set(said) == {"shapes:fog:3"}
    assert source.n_views == 2 and source.model == "mini" and source.prompts
    assert all(cell.reason is None for cell in first.outline.cells)
    assert [each.few is None for each in first.specs].count(False) == 1  # of gda
    again = plan(design, sources, tmp_path)
    assert again.outline == first.outline
    assert count_runs(design, sources) == len(first.specs)
