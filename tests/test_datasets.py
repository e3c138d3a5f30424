"""The catalogue, draws from it, and sets of images of one's own."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

import pytest

from crg.datasets import drawn_indices, indices_sha256, load_dataset
from crg.datasets.catalog import SAMPLE_SEED, SAMPLE_SIZE, catalogue, find_entry, get_entry
from crg.datasets.folder import count_ignored, read_folder
from crg.prompts import check_template
from made_datasets import put, put_all
from sentences import check_refused

IMAGENET = (
    *("itap of a {}.", "a bad photo of the {}.", "a origami {}.", "a photo of the large {}."),
    *("a {} in a video game.", "art of the {}.", "a photo of the small {}."),
)
PAPER = {  # classes, test images, whether 2,000 are drawn, templates
    "Caltech101": (100, 2465, False, ("a photo of a {}.",)),
    "DTD": (47, 1692, False, ("{} texture.",)),
    "EuroSAT": (10, 8100, False, ("a centered satellite photo of {}.",)),
    "FGVCAircraft": (100, 3333, False, ("a photo of a {}, a type of aircraft.",)),
    "Flowers102": (102, 2463, False, ("a photo of a {}, a type of flower.",)),
    "Food101": (101, 30300, True, ("a photo of {}, a type of food.",)),
    "ImageNet": (1000, 50000, True, IMAGENET),
    "OxfordPets": (37, 3669, False, ("a photo of a {}, a type of pet.",)),
    "StanfordCars": (196, 8041, False, ("a photo of a {}.",)),
    "SUN397": (397, 19850, True, ("a photo of a {}.",)),
    "UCF101": (101, 3783, False, ("a photo of a person doing {}.",)),
    "ImageNet-V2": (1000, 10000, True, IMAGENET),
    "ImageNet-A": (200, 7500, True, IMAGENET),
}


def test_the_catalogue_is_that_of_the_paper() -> None:
    """Thirteen datasets with the paper's numbers and templates; published hashes are our draws."""
    entries = catalogue().values()
    found = {e.title: (e.classes, e.test, e.sampled, e.templates) for e in entries}
    assert found == PAPER
    assert list(found) == list(PAPER)
    for entry in catalogue().values():
        assert len(set(entry.class_names)) == len(entry.class_names)
        assert len(entry.class_names) in (0, entry.classes)
        assert set(entry.renamed.values()) <= set(entry.class_names)
        assert bool(entry.split_file) == bool(entry.split_url) == (entry.reader == "split")
        assert bool(entry.names_url) == (entry.reader in ("wnid", "numbered"))
        assert entry.per_class in (0, entry.test // entry.classes)
        assert entry.source.startswith("http")
        for template in entry.templates:
            check_template(template)
        drawn = drawn_indices(entry.test, SAMPLE_SIZE, SAMPLE_SEED) if entry.sampled else None
        assert entry.sample_sha256 == (indices_sha256(drawn) if drawn else ""), entry.name


def test_names_are_found_however_they_are_written() -> None:
    """Case, hyphens and underscores do not matter, and no name means two datasets."""
    for entry in catalogue().values():
        for name in (entry.name, entry.title, entry.title.upper(), *entry.aliases):
            assert find_entry(name) is entry
    check_refused("did you mean 'imagenet'", get_entry, "imagnet")
    check_refused("crg datasets lists them", get_entry, "zzz")


def test_draws_are_random_subsets() -> None:
    """Distinct, in order, different by seed, spread evenly, and the small one part of the large."""
    drawn = drawn_indices(50_000, 2000, 0)
    assert len(set(drawn)) == 2000 and list(drawn) == sorted(drawn)
    assert 0 <= drawn[0] and drawn[-1] < 50_000
    assert drawn_indices(50_000, 2000, 1) != drawn
    assert set(drawn_indices(50_000, 100, 0)) < set(drawn)
    assert abs(sum(drawn) / 2000 - 25_000) < 1300  # four standard errors
    assert indices_sha256([3, 14]) == hashlib.sha256(b"3,14").hexdigest()


def test_a_limit_draws_images_with_their_labels(tmp_path: Path) -> None:
    """Ids, sources and labels stay together, and a limit above the size changes nothing."""
    put_all(tmp_path / f"{name}/{n}.jpg" for name in "ab" for n in range(10))
    whole = load_dataset(str(tmp_path))
    some = load_dataset(str(tmp_path), limit=7, seed=3)
    rows = drawn_indices(20, 7, 3)
    assert some.ids == tuple(whole.ids[i] for i in rows)
    assert some.sources == tuple(tmp_path / name for name in some.ids)
    assert some.labels == tuple("ab".index(name[0]) for name in some.ids)
    assert load_dataset(str(tmp_path), limit=20) == whole
    check_refused("limit is 0", load_dataset, str(tmp_path), limit=0)


def test_shapes_are_rendered() -> None:
    """The name may carry a shift and a severity; the limit is the number of images."""
    clean, foggy = load_dataset("shapes", limit=5), load_dataset("shapes:fog:4", limit=5)
    assert len(clean) == len(foggy) == 5
    assert clean.fingerprint() != foggy.fingerprint()
    assert load_dataset("shapes:fog", limit=5) == load_dataset("shapes:fog:1", limit=5)
    assert load_dataset("shapes:clean", limit=5) == clean
    check_refused("write shapes:clean.", load_dataset, "shapes:clean:2")
    for name in ("shapes:fog:x", "shapes:fog:1:2"):
        check_refused("shapes:SHIFT:SEVERITY", load_dataset, name)
    check_refused("no split 'train'", load_dataset, "shapes", split="train")


def test_a_folder_per_class(tmp_path: Path) -> None:
    """Classes are sorted folders; nested images count, hidden and other files do not."""
    put_all(tmp_path / p for p in ("b cat/2.JPG", "b cat/deep/er/1.png", "ä/x.webp", "ä/.x.jpg"))
    put_all(tmp_path / p for p in (".git/x.jpg", "ä/notes.txt", "loose.jpg"))
    images = load_dataset(str(tmp_path))
    assert images.class_names == ("b cat", "ä")
    assert images.ids == ("b cat/2.JPG", "b cat/deep/er/1.png", "ä/x.webp")
    assert images.labels == (0, 0, 1)
    assert images.name == tmp_path.name
    assert count_ignored(tmp_path) == 2


def test_a_link_to_a_folder_above_does_not_trap(tmp_path: Path) -> None:
    """Linked folders are followed, once."""
    put_all(tmp_path / name for name in ("set/cat/1.jpg", "elsewhere/2.jpg", "set/dog/1.jpg"))
    (tmp_path / "set/cat/more").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "set/cat/loop").symlink_to(tmp_path / "set/cat")
    images = read_folder(tmp_path / "set")
    assert images.ids == ("cat/1.jpg", "cat/more/2.jpg", "dog/1.jpg")


def test_a_folder_that_cannot_be_listed_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Images are never left out silently because a folder is locked."""
    put_all([tmp_path / "cat/deep/1.jpg", tmp_path / "cat/2.jpg", tmp_path / "dog/1.jpg"])
    real = os.scandir
    for locked in (tmp_path, tmp_path / "cat/deep"):

        def scandir(path: Any, locked: Path = locked) -> Any:
            if Path(path) == locked:
                raise PermissionError(13, "Permission denied", str(path))
            return real(path)

        monkeypatch.setattr(os, "scandir", scandir)
        check_refused((str(locked), "Permission denied"), load_dataset, str(tmp_path))


@pytest.mark.parametrize(("suffix", "mark"), [("csv", ","), ("TSV", "\t")])
def test_a_table(suffix: str, mark: str, tmp_path: Path) -> None:
    """Paths are relative to the table, class names are sorted, other columns are left out."""
    put_all(tmp_path / p for p in ("p/1 é.jpg", "p/2.jpg", "p/3.jpg"))
    rows = ["Label,note,Path", "dog,x,p/1 é.jpg", "", " cat ,y,./p/2.jpg", "dog,z,p/3.jpg"]
    table = put(tmp_path / f"set.{suffix}", "\ufeff" + "\r\n".join(rows).replace(",", mark))
    images = load_dataset(str(table))
    assert images.ids == ("p/1 é.jpg", "p/2.jpg", "p/3.jpg")
    assert (images.class_names, images.labels) == (("cat", "dog"), (1, 0, 1))
    assert images.sources[0] == tmp_path / "p/1 é.jpg"


def test_a_table_without_labels_and_with_a_root(tmp_path: Path) -> None:
    """Without the column label nothing is known of classes; a root replaces the table's folder."""
    put(tmp_path / "far/1.jpg")
    table = put(tmp_path / "near/set.csv", "path\n1.jpg\n")
    images = load_dataset(str(table), root=tmp_path / "far")
    assert (images.class_names, images.labels) == ((), None)
    assert images.sources == (tmp_path / "far/1.jpg",)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        *((start, "no column path") for start in ("", "file,label\n1.jpg,a\n")),
        ("path,label\n", "lists no images"),
        *((f"path,label\n1.jpg{end}\n", "no label in line 2") for end in (",", "")),
        ("path,label\n,a\n", "no path in line 2"),
        ("path,label\n1.jpg,a\n2.jpg,a\n./1.jpg,b\n", "1.jpg in line 2 and again in line 4"),
        ("path,label\n1.jpg,a\nx.jpg,a\n", "an image that does not exist (first x.jpg in line 3)"),
        ("path\nx.jpg\ny.jpg\n", "2 images that do not exist"),
        (f"path\n{'x' * 300}.jpg\n", "an image that does not exist"),
        ('path,label\n1.jpg,a\n2.jpg,"b\n', "cannot be read"),
        ("path,label\na,b.jpg,cat\n", "3 cells in line 2 but 2 columns"),
        ("path,label\n\udcff.jpg,a\n", "cannot be read"),
    ],
)
def test_odd_tables_are_refused(content: str, words: str, tmp_path: Path) -> None:
    """Each fault of a table is reported in a sentence that names the line."""
    put_all([tmp_path / "1.jpg", tmp_path / "2.jpg"])
    table = put(tmp_path / "set.csv", content.encode("utf-8", "surrogateescape"))
    check_refused(("set.csv", words), load_dataset, str(table))


def test_other_places_are_refused(here: Path) -> None:
    """Empty, flat and half-empty folders, other files and unknown names each have a sentence."""

    def refused(name: str, *words: str, **options: Any) -> None:
        check_refused(words, load_dataset, name, **options)

    refused(".", "neither folders nor images")
    put(here / "1.jpg")
    refused(".", "images but no folder")
    put(here / "cat/notes.txt", "x")
    refused(".", "cat holds no image")
    refused(".", "needs no root", root=here)
    refused(".", "no split 'train'", split="train")
    refused("1.jpg", "not a set of images")
    refused("dtdd", "did you mean 'dtd'?")
    for name in ("nowhere/at/all", "x" * 300 + "/y"):
        refused(name, f"{name} does not exist")
    (here / "dtd").mkdir()
    refused("dtd", "holds dtd", "./dtd")
