"""`crg datasets`: the list, one dataset, and the check of one on disk."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from crg.datasets import catalog
from crg.datasets.catalog import DatasetEntry, catalogue, get_entry
from crg.datasets.check import check_dataset
from made_datasets import WNIDS, jpeg, make_aircraft, make_imagenet, make_split_dataset, put
from processes import called


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """The catalogue expects as many classes and images as the small copies have."""
    sizes = {"caltech101": (2, 2, 0), "fgvcaircraft": (2, 2, 0), "imagenet": (3, 6, 2)}
    entries = dict(catalogue())
    for name, (classes, test, per_class) in sizes.items():
        change: dict[str, Any] = {"classes": classes, "test": test, "per_class": per_class}
        entries[name] = dataclasses.replace(entries[name], **change)
    monkeypatch.setattr(catalog, "catalogue", lambda: entries)


def _crg(*words: str, code: int = 0) -> Result:
    return called("datasets", *words, code=code)


def _problems(name: str, root: Path | None = None) -> dict[str, Any]:
    report = check_dataset(name, root)
    return {problem.sentence: problem.items for problem in report.problems}


@pytest.mark.usefixtures("small")
def test_whole_copies_are_fine(tmp_path: Path) -> None:
    """Every layout passes, and each image advances the progress."""
    make_split_dataset(tmp_path, get_entry("caltech101"))
    make_aircraft(tmp_path)
    make_imagenet(tmp_path)
    for name in ("caltech101", "fgvc", "imagenet"):
        assert _problems(name, tmp_path) == {}
    seen: list[tuple[int, int]] = []
    report = check_dataset("imagenet", tmp_path, lambda *count: seen.append(count))
    assert (report.n_classes, report.n_images) == (3, 6)
    assert seen == [(done, 6) for done in range(1, 7)]


@pytest.mark.usefixtures("small")
def test_missing_and_damaged_images_are_listed(tmp_path: Path) -> None:
    """Each bad file is named with what is wrong, a truncated JPEG too."""
    rows = [[f"a/{n}.jpg", n % 2, f"class {n % 2}"] for n in range(5)]
    folder = make_split_dataset(tmp_path, get_entry("caltech101"), {"test": rows})
    images = folder / "101_ObjectCategories/a"
    (images / "0.jpg").unlink()
    put(images / "1.jpg", b"")
    put(images / "2.jpg", "not an image")
    whole = jpeg((64, 64))
    put(images / "3.jpg", whole[: len(whole) - 40])
    found = _problems("caltech101", tmp_path)
    assert found["There are 5 test images, not 2."] == ()
    assert found["1 image is not there."] == ("a/0.jpg",)
    reasons = found["3 images are unreadable."]
    assert [line.partition(":")[0] for line in reasons] == ["a/1.jpg", "a/2.jpg", "a/3.jpg"]
    assert "zero bytes" in reasons[0] and "not an image" in reasons[1]


@pytest.mark.usefixtures("small")
def test_wrong_numbers_and_names_of_classes(tmp_path: Path) -> None:
    """Too few classes, as many with other names, and classes with odd numbers are reported."""
    (make_imagenet(tmp_path) / WNIDS[1] / f"{WNIDS[1]}_1.JPEG").unlink()
    uneven = {"There are 5 test images, not 6.": ("goldfish: 1, not 2",)}
    assert _problems("imagenet", tmp_path) == uneven
    entry = get_entry("eurosat")
    make_split_dataset(tmp_path, entry)
    assert "There are 2 classes, not 10." in _problems("eurosat", tmp_path)
    names = ["Annual Crop", *entry.class_names[1:]]
    split = {"test": [[f"{n}.jpg", n, name] for n, name in enumerate(names)]}
    make_split_dataset(tmp_path, entry, split)
    assert _problems("eurosat", tmp_path)["1 class name is not the usual."] == ("Annual Crop",)


def test_one_of_ones_own_is_checked_too(tmp_path: Path) -> None:
    """A folder per class and a table are opened file by file; what was left out is counted."""
    put(tmp_path / "set/cat/1.jpg")
    put(tmp_path / "set/dog/1.jpg", "x")
    put(tmp_path / "set/dog/notes.txt", "x")
    report = check_dataset(str(tmp_path / "set"))
    assert report.n_ignored == 1
    [[fault]] = [problem.items for problem in report.problems]
    assert fault.startswith("dog/1.jpg: ") and "is not an image" in fault
    table = put(tmp_path / "set.csv", "path,label\nset/cat/3.jpg,cat\n")
    (sentence,) = _problems(str(table))
    assert "does not exist" in sentence


def test_the_list_names_all_thirteen() -> None:
    """`crg datasets` prints a line for each, and the same as JSON; shapes are described too."""
    text = _crg().output
    assert all(entry.name in text and f"{entry.test:,}" in text for entry in catalogue().values())
    listed = json.loads(_crg("--json").output)["datasets"]
    assert [each["name"] for each in listed] == list(catalogue())
    assert "fog" in _crg("shapes").output
    assert "night" in json.loads(_crg("shapes", "--json").output)["shifts"]
    sha256 = get_entry("imagenet").sample_sha256
    assert listed[6]["sample"] == {"size": 2000, "seed": 0, "sha256": sha256}


@pytest.mark.parametrize("entry", catalogue().values(), ids=lambda entry: entry.name)
def test_one_dataset_is_described_in_full(entry: DatasetEntry) -> None:
    """Templates, layout, source and the hash of the draw are printed."""
    text = " ".join(_crg(entry.name).output.split())
    assert all(template in text for template in entry.templates)
    assert entry.source in text and entry.sample_sha256 in text
    assert f"{entry.folders[0]}/" in text
    assert json.loads(_crg(entry.name, "--json").output)["classes"] == entry.classes


@pytest.mark.usefixtures("small")
def test_exit_codes_of_the_check(tmp_path: Path) -> None:
    """0 all is fine, 1 something is wrong, 2 bad input."""
    folder = make_split_dataset(tmp_path, get_entry("caltech101"))
    words = ("check", "caltech101", "--root", str(tmp_path))
    assert _crg(*words).output == "caltech101: all is fine (2 classes, 2 images).\n"
    put(folder / "101_ObjectCategories/a/4.jpg", "x")
    said = _crg(*words, code=1).output
    assert "1 image is unreadable." in said and "data.caltech.edu" in said
    found = json.loads(_crg(*words, "--json", code=1).output)
    assert (found["fine"], found["problems"][0]["kind"]) == (False, "unreadable")


def test_long_lists_are_cut_on_screen_but_not_in_json(tmp_path: Path) -> None:
    """Ten files are shown and the rest counted."""
    rows = [[f"a/{n:02}.jpg", 0, "x"] for n in range(30)]
    folder = make_split_dataset(tmp_path, get_entry("dtd"), {"test": rows})
    for n in range(1, 14):
        (folder / f"images/a/{n:02}.jpg").unlink()
    words = ("check", "dtd", "--root", str(tmp_path))
    assert "a/10.jpg\n  and 3 more" in _crg(*words, code=1).output
    problems = json.loads(_crg(*words, "--json", code=1).output)["problems"]
    assert [len(each["items"]) for each in problems if each["kind"] == "missing"] == [13]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["imagnet"], "did you mean 'imagenet'"),
        (["check"], "takes one name"),
        (["check", "a", "b"], "takes one name"),
        (["dtd", "eurosat"], "takes one name"),
        (["dtd", "--root", "."], "belongs to crg datasets check"),
        (["check", "dtd"], "holds dtd"),
        (["check", "dtdd"], "did you mean 'dtd'?"),
        (["check", "dtd", "--root", "/nowhere"], "/nowhere is not a folder"),
    ],
)
def test_bad_input_exits_with_two(words: list[str], sentence: str) -> None:
    """Wrong words on the command line are one sentence and exit code 2."""
    said = _crg(*words, code=2).output
    assert said.count("\n") == 1 and sentence in said
