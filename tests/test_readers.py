"""Readers of the usual layouts, on small copies made here."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from crg.datasets import load_dataset
from crg.datasets.catalog import DatasetEntry, catalogue, get_entry
from made_datasets import (
    CLASS_NAMES,
    SPLIT,
    WNIDS,
    make_aircraft,
    make_imagenet,
    make_imagenet_v2,
    make_split_dataset,
    put,
    put_all,
)
from sentences import check_refused

WITH_SPLIT_FILE = [entry for entry in catalogue().values() if entry.reader == "split"]
DTD = get_entry("dtd")


@pytest.fixture(autouse=True)
def no_image_is_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading a list touches no image, so that large sets load at once."""
    monkeypatch.setattr(Image, "open", lambda *_, **__: pytest.fail("an image was opened"))


@pytest.mark.parametrize("entry", WITH_SPLIT_FILE, ids=lambda entry: entry.name)
def test_split_files_are_read_where_the_catalogue_says(entry: DatasetEntry, tmp_path: Path) -> None:
    """Order, labels, class names and paths are those of the split file."""
    folder = make_split_dataset(tmp_path, entry)
    found = load_dataset(entry.name, root=tmp_path)
    assert found.ids == ("b/5.jpg", "a/4.jpg")
    assert found.labels == (1, 0)
    assert found.class_names == ("first_thing", "second_thing")
    assert found.templates == entry.templates
    assert found.sources[0] == folder / entry.images[0] / "b/5.jpg"
    assert all(isinstance(path, Path) and path.is_file() for path in found.sources)


def test_the_root_may_be_the_folder_of_the_dataset(tmp_path: Path) -> None:
    """Pointing at the dataset's own folder works like pointing at the one above, for any split."""
    folder = make_split_dataset(tmp_path, DTD)
    inside, above = load_dataset("dtd", root=folder), load_dataset("dtd", root=tmp_path)
    assert (inside.sources, inside.fingerprint()) == (above.sources, above.fingerprint())
    train = load_dataset("dtd", root=tmp_path, split="train")
    assert (train.name, train.ids, train.labels) == ("dtd:train", ("a/1.jpg", "b/2.jpg"), (0, 1))
    val = load_dataset("dtd", root=folder, split="val")
    assert (val.ids, len(val.class_names)) == (("a/3.jpg",), 2)


def test_the_layout_of_tpt_is_found(tmp_path: Path) -> None:
    """Split files in a separate folder, images right below the dataset's folder."""
    put(tmp_path / "data_splits/split_zhou_Caltech101.json", json.dumps(SPLIT))
    put_all(tmp_path / "Caltech101" / name for name in ("a/4.jpg", "b/5.jpg"))
    found = load_dataset("caltech101", root=tmp_path)
    assert found.sources[1] == tmp_path / "Caltech101/a/4.jpg"


def test_folder_names_of_eurosat_become_those_of_prompts(tmp_path: Path) -> None:
    """A split file with the names of EuroSAT's folders gives the names that CoOp uses."""
    split = {"test": [["AnnualCrop/1.jpg", 0, "AnnualCrop"], ["Forest/1.jpg", 1, "Forest"]]}
    make_split_dataset(tmp_path, get_entry("eurosat"), split)
    assert load_dataset("eurosat", root=tmp_path).class_names == ("Annual Crop Land", "Forest")


@pytest.mark.parametrize("folder", ["fgvc_aircraft", "fgvc_aircraft/data"])
def test_aircraft_lists(folder: str, tmp_path: Path) -> None:
    """Labels follow variants.txt, images follow the list of the split."""
    place = make_aircraft(tmp_path, folder)
    found = load_dataset("fgvc", root=tmp_path)
    assert (found.class_names, found.labels) == (("707-320", "Boeing 717"), (1, 0))
    assert found.ids == ("0000002.jpg", "0000001.jpg")
    assert found.sources[0] == place / "images/0000002.jpg"
    assert load_dataset("aircraft", root=tmp_path, split="train").ids == ("0000003.jpg",)


@pytest.mark.parametrize("images", ["imagenet/images/val", "imagenet/val"])
def test_imagenet_folders(images: str, tmp_path: Path) -> None:
    """Classes follow classnames.txt, images are sorted, val is the test split; train is there."""
    put(make_imagenet(tmp_path, images) / WNIDS[0] / ".DS_Store", "x")
    found = load_dataset("ImageNet", root=tmp_path)
    assert found.class_names == ("tench", "goldfish", "great white shark")
    assert found.labels == (0, 0, 1, 1, 2, 2)
    assert found.ids[:2] == ("n01440764/n01440764_1.JPEG", "n01440764/n01440764_2.JPEG")
    make_imagenet(tmp_path, images.replace("val", "train"))
    assert len(load_dataset("imagenet", root=tmp_path, split="train")) == 6
    shutil.rmtree(tmp_path / images / WNIDS[0])  # labels stay places in the list
    partial = load_dataset("imagenet", root=tmp_path)
    assert partial.labels == (1, 1, 2, 2) and len(partial.class_names) == 3


def test_imagenet_v2_folders_count_as_numbers(tmp_path: Path) -> None:
    """Folder 10 is class 10, not the one that sorting texts would make it."""
    images = make_imagenet_v2(tmp_path)
    more = "".join(f"n0000000{number} thing {number}\n" for number in range(8))
    put(tmp_path / "imagenetv2/classnames.txt", CLASS_NAMES + more)
    put(images / "10/x.jpeg")
    found = load_dataset("imagenet-v2", root=tmp_path)
    assert found.labels == (0, 1, 2, 10)
    assert found.class_names[10] == "thing 7"


def test_imagenet_a_has_the_classes_of_its_folders(tmp_path: Path) -> None:
    """Only names that have a folder are classes, in their order; ImageNet's names serve too."""
    folder = tmp_path / "imagenet-adversarial"
    put_all(folder / "imagenet-a" / wnid / "0.1_x.jpg" for wnid in (WNIDS[2], WNIDS[0]))
    put(folder / "imagenet-a/README.txt", "about these images")
    put(folder / "classnames.txt", CLASS_NAMES)
    make_imagenet(tmp_path)
    for _ in range(2):
        found = load_dataset("imagenet_a", root=tmp_path)
        assert found.class_names == ("tench", "great white shark")
        assert found.ids == ("n01440764/0.1_x.jpg", "n01484850/0.1_x.jpg")
        (folder / "classnames.txt").unlink(missing_ok=True)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", "does not list"),
        ("[1]", "train, val and test"),
        *(
            (json.dumps({"test": [["a.jpg", *row]]}), "[path, label, class name]")
            for row in ([0], ["0", "x"], [True, "x"], [-1, "x"])
        ),
        ('{"test": [["a.jpg", 0, "x"], ["b.jpg", 0, "y"]]}', "two names for label 0, x and y"),
        ('{"test": [["a.jpg", 2, "x"]]}', "every label"),
        ('{"test": []}', "every label"),
        ('{"train": [["a.jpg", 0, "x"]]}', "no split 'test': choose train"),
        ('{"test": [["a.jpg", 0, "x"], ["a.jpg", 0, "x"]]}', "lists a.jpg twice"),
    ],
)
def test_odd_split_files_are_refused(content: str, words: str, tmp_path: Path) -> None:
    """Each fault of a split file is reported in a different sentence."""
    put(tmp_path / "dtd/split_zhou_DescribableTextures.json", content)
    put(tmp_path / "dtd/images/a.jpg")
    check_refused(words, load_dataset, "dtd", root=tmp_path)


def refused(name: str, root: Path, *words: str, **options: Any) -> None:
    """Loading the dataset is refused in one sentence with these words."""
    check_refused(words, load_dataset, name, root=root, **options)


def test_missing_parts_are_named_with_their_source(tmp_path: Path) -> None:
    """No root, no folder, no split file, no images: each sentence says what to get where."""
    refused("dtd", tmp_path / "nowhere", "not a folder")
    refused("dtd", tmp_path, "DTD is not in", "no folder dtd", DTD.source)
    (tmp_path / "dtd").mkdir()
    refused("dtd", tmp_path, "lacks the file split_zhou_Desc", DTD.split_url)
    put(tmp_path / "dtd" / DTD.split_file, json.dumps(SPLIT))
    refused("dtd", tmp_path, "no images/b/5.jpg", DTD.source)


def test_odd_imagenet_folders_are_refused(tmp_path: Path) -> None:
    """Unsorted images, unknown classes and odd names each have a sentence."""
    put(tmp_path / "imagenet/images/val/ILSVRC2012_val_00000001.JPEG")
    refused("imagenet", tmp_path, "no folder per class")
    images = make_imagenet(tmp_path)
    refused("imagenet", tmp_path, "no split 'val': choose train or test", split="val")
    put(images / "n09999999/x.JPEG")
    refused("imagenet", tmp_path, "n09999999 is not in it")
    names = put(tmp_path / "imagenet/classnames.txt", "tench\n")
    refused("imagenet", tmp_path, "odd line 'tench'")
    names.write_bytes(b"\xff\xfe")
    refused("imagenet", tmp_path, "cannot be read")
    names.unlink()
    refused("imagenet", tmp_path, "lacks the file classnames.txt")


def test_other_odd_layouts_are_refused(tmp_path: Path) -> None:
    """Too many numbered folders, unknown variants and empty folders are reported."""
    put(make_imagenet_v2(tmp_path) / "3/x.jpeg")
    refused("imagenet-v2", tmp_path, "not 0 to 2")
    place = make_aircraft(tmp_path)
    refused("fgvc", tmp_path, "no split 'dev': choose train or val or test", split="dev")
    put(place / "images_variant_test.txt", "0000001 Concorde\n")
    refused("fgvc", tmp_path, "'Concorde', which variants.txt lacks")
    (place / "images_variant_test.txt").unlink()
    refused("fgvc", tmp_path, "images_variant_test.txt cannot be read")
    (tmp_path / "imagenet-adversarial/imagenet-a").mkdir(parents=True)
    refused("imagenet-a", tmp_path, "no imagenet-a with a folder per class")
