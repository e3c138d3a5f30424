"""The file of an experiment: what it may say, and what is said of mistakes in it."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest
from msgspec.structs import fields

from crg.bench.design import DataDesign, Design, Figure, Quick, RowDesign, read_design, with_methods
from crg.bench.sources import find_sources
from crg.results.schema import Setting
from crg.streams import ORDERS
from crg.types import InputError
from documents import ROOT, code_blocks
from made_experiments import FILES, ROWS, save_experiment
from sentences import check_refused

WHOLE = """
title = "A title"
about = \"\"\"
Two lines
of text.\"\"\"
figure = "noise"
orders = 3
memory = true
x_title = "q"
setting = [{ label = "half", order = "dirichlet", strength = 0.5, mislabelled = 0.5, x = 0.5 }]
data = [
    { datasets = ["DTD", "imagenet_v2"], models = ["RN50"] },
    { shapes = ["night", "clean"], severity = 2, images = 64, views = 2, shots = 1 },
    { files = true },
]
quick = { shapes = ["fog"], images = 32, orders = 2, at_most = 100 }
[[row]]
label = "bare"
method = "crg"
options = { negative = false, queue_size = 4 }
tuned = true
x = 4
"""

MISTAKES = {
    "rows = 1": "there is no key 'rows': did you mean 'row'?",
    "title = 3": "toml, title: expected `str`, got `int`: correct it there.",
    'figure = "pie"': "figure: invalid enum value 'pie': choose one of table,",
    "orders = 0": "orders: expected `int` >= 1: correct it there.",
    'name = "a/b"': "name is 'a/b': choose one without slashes",
    "row = 1": "row: expected `array`, got `int`: write [[row]] above each",
    "[row]\nmethod = 'tda'\n[row]\nmethod = 'crg'": "write [[row]] above each of them.",
    "reported = 'robustnes'": "reported is 'robustnes': did you mean 'robustness'?",
    "figure = 'sweep'": "figure is 'sweep': it needs x in the rows that it shows, or choose",
    "figure = 'shots'\n[[row]]\nmethod = 'tda'\nx = 0": "it needs x above 0 in the rows",
    "figure = 'noise'\n[[setting]]\nmislabelled = 0.5": "it needs x in every setting, or choose",
    "[[row]]\nmethod = 'tda'\nlable = 'a'": "row 1: there is no key 'lable': did you mean 'label'",
    "[[row]]\nmethod = 'tda'\nx = 'far'": "row 1.x: expected `float | null`, got `str`: corr",
    "[[row]]\nmethod = 'tda'\nlabel = 'zero_shot'": "zero_shot is the label of plain zero-shot",
    "row = [1]": "row 1: expected `object`, got `int`: write [[row]] above each",
    "[[row]]\nlabel = 'x'": "row 1: object missing required field `method`: correct",
    "[[row]]\nmethod = 'tdaa'": "row 1 ('tdaa'): There is no method 'tdaa': did you mean",
    "[[row]]\nmethod = 'tda'\noptions = { size = 1 }": "row 1 ('tda'): Method 'tda' has no option",
    "[[row]]\nmethod = 'tda'\noptions = { positive_size = 0 }": "it must be at least 1.",
    "[[row]]\nmethod = 'tda'\npasses = 3": "row 1.passes: invalid enum value 3: choose one of 1",
    "[[row]]\nmethod = 'tda'\npreset = 'mine'": "'mine': choose one of none, published.",
    "[[row]]\nmethod = 'crg'\npreset = 'published'": "crg has no published preset: leave",
    "[[row]]\nmethod = 'tda'\n[[row]]\nmethod = 'tda'": "two rows are called 'tda': give one",
    "[[setting]]\norder = 'sorted'": "setting 1 ('sorted'): There is no order 'sorted'",
    "[[setting]]\nstrength = 1": "has no strength: leave it out.",
    "[[data]]\ndatasets = ['mnist']\nmodels = ['RN50']": "There is no dataset 'mnist'",
    "[[data]]\ndatasets = ['dtd']": "data 1: models is missing: name those that encoded the stores",
    "[[data]]\nshapes = ['nigth']": "There is no shift 'nigth': did you mean 'night'?",
    "[[data]]\nshapes = []": "data 1.shapes: expected `array` of length >= 1",
    "[[data]]\nshapes = ['fog']\nfiles = true": "it asks for shapes and files: give one of",
    "[[data]]\nfiles = true\nviews = 2": "data 1: there is no key 'views' beside files",
    "[quick]\nimage = 3": "quick: there is no key 'image': did you mean 'images'?",
    "[[data]]\nfiles = false": "data 1: files is false: leave the table out.",
    "title = ": "is not TOML",
    ROWS: "it names no data: write [[data]] with datasets, shapes or files.",
    "[[data]]": "it asks for nothing: give one of datasets, shapes and files.",
}


def test_a_file_becomes_a_design(tmp_path: Path) -> None:
    """Every key arrives where it belongs, and what is left out has its default."""
    design = read_design(save_experiment(tmp_path, WHOLE))
    assert (design.name, design.title, design.about) == ("small", "A title", "Two lines of text.")
    assert design.memory and not design.gallery and design.orders == 3
    bare = design.rows[1]
    assert bare.options == {"negative": False, "queue_size": 4} and bare.is_tuned and bare.x == 4
    [half] = design.settings
    assert half.scenario.strength == 0.5 and half.scenario.mislabelled == 0.5 and half.x == 0.5
    assert design.data == (
        DataDesign(("dtd", "imagenet-v2"), ("RN50",)),
        DataDesign(shapes=("night", "clean"), severity=2, images=64, views=2, shots=1),
        DataDesign(files=True),
    )

    quick = design.reduced()  # what [quick] does not name stays
    assert quick.quick is None and quick.orders == 2 and quick.settings[0].images == 100
    assert quick.data[1] == DataDesign(shapes=("fog",), severity=2, images=32, views=2, shots=1)


@pytest.mark.parametrize("text", MISTAKES)
def test_mistakes_are_reported_with_file_place_and_remedy(text: str, tmp_path: Path) -> None:
    """Each kind of mistake is one sentence that begins with the file."""
    ending = "" if "[[data]]" in text or text in ("title = ", ROWS) else f"\n{FILES}"
    path = save_experiment(tmp_path, f"{text}{ending}")
    with pytest.raises(InputError) as caught:
        read_design(path)
    assert str(caught.value).startswith(str(path)) and MISTAKES[text] in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "path", sorted((ROOT / "experiments").glob("*.toml")), ids=lambda p: p.stem
)
def test_the_experiments_of_the_project_can_be_read(path: Path, tmp_path: Path) -> None:
    """Each is whole, has a title and an explanation, runs on shapes, and has a quick form."""
    design = read_design(path)
    assert design.title and design.about.endswith(".") and design.orders >= 5
    assert design.rows[0].label == "zero_shot"
    sources = find_sources(design.reduced(), (), tmp_path)
    assert any(each.is_rendered and each.missing is None for each in sources)
    orders = {setting.order for setting in design.settings}
    assert path.stem != "streams" or orders == {*ORDERS} - {"many_names"}


def test_the_documented_experiment_can_be_read(tmp_path: Path) -> None:
    """The example is whole: rows, settings, all kinds of data and a quick form."""
    blocks = code_blocks(ROOT / "docs" / "benchmark.md", "toml")
    [text] = [block for block in blocks if "[[row]]" in block]
    design = read_design(save_experiment(tmp_path, text))
    assert design.rows[0].label == "zero_shot" and len(design.settings) == 2
    assert [bool(each.datasets or each.shapes) for each in design.data] == [True, True, False]
    assert design.reduced() != design and not design.rows[1].is_tuned and design.rows[4].is_tuned


def test_every_key_is_documented() -> None:
    """Whatever the file of an experiment may say stands in the section that explains it."""
    document = (ROOT / "docs" / "benchmark.md").read_text()
    tables = document.split("## An experiment of your own")[1].split("```")[-1]
    kinds = (Design, RowDesign, Setting, DataDesign, Quick)
    keys = {key.encode_name for kind in kinds for key in fields(kind)}
    keys = (keys | {*get_args(Figure)}) - {"row", "setting", "data", "quick"}
    assert {key for key in keys if f"`{key}`" not in tables} == set()


def test_methods_are_chosen_and_added(tmp_path: Path) -> None:
    """A label or a method chooses rows, zero-shot stays, and a method of no row becomes one."""
    last = "[[row]]\nmethod = 'zero_shot'\n"  # it is the first row where the file does not name it
    design = read_design(save_experiment(tmp_path, ROWS + last + FILES))
    assert [row.label for row in design.rows] == ["tda", "crg", "zero_shot"]
    small = "[[row]]\nlabel = 'small'\nmethod = 'gda'\noptions = { shots = 2 }\n"
    design = read_design(save_experiment(tmp_path, ROWS + small + FILES))
    for asked, chosen in (("crg", "crg"), ("small", "small"), ("gda", "small"), ("dpe", "dpe")):
        whole, found = with_methods(design, [RowDesign(asked, asked)])
        assert found == {"zero_shot", chosen}
        new = ["dpe"] if asked == "dpe" else []
        assert [row.label for row in whole.rows] == ["zero_shot", "tda", "crg", "small", *new]
    other = RowDesign("tda", "tda", {"positive_size": 2})
    check_refused("two rows are called 'tda'", with_methods, design, [other])
    check_refused("does not exist", read_design, tmp_path / "nothing.toml")
