"""Small copies of the layouts of the datasets, made on the spot."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from PIL import Image

from crg.datasets.catalog import DatasetEntry
from made_files import encoded

WNIDS = ("n01440764", "n01443537", "n01484850")
CLASS_NAMES = "n01440764 tench\nn01443537 goldfish\nn01484850 great white shark\n"
SPLIT = {
    "train": [["a/1.jpg", 0, "first_thing"], ["b/2.jpg", 1, "second_thing"]],
    "val": [["a/3.jpg", 0, "first_thing"]],
    "test": [["b/5.jpg", 1, "second_thing"], ["a/4.jpg", 0, "first_thing"]],
}


def jpeg(size: tuple[int, int] = (8, 6)) -> bytes:
    """A small image as the bytes of a file."""
    return encoded(Image.new("RGB", size, (200, 30, 60)), "JPEG")


def put(path: Path, content: str | bytes | None = None) -> Path:
    """A file with that content, or an image, and the folders above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(content, str):
        path.write_text(content, encoding="utf-8")
    else:
        path.write_bytes(jpeg() if content is None else content)
    return path


def make_split_dataset(root: Path, entry: DatasetEntry, split: Any = SPLIT) -> Path:
    """A copy with CoOp's split file, where the catalogue expects it; the folder is returned."""
    folder = root / entry.folders[0]
    put(folder / entry.split_file, json.dumps(split))
    for rows in split.values():
        put_all(folder / entry.images[0] / path for path, _, _ in rows)
    return folder


def make_aircraft(root: Path, folder: str = "fgvc_aircraft") -> Path:
    """FGVC-Aircraft's text lists with two variants and two test images."""
    place = root / folder
    put(place / "variants.txt", "707-320\nBoeing 717\n")
    put(place / "images_variant_test.txt", "0000002 Boeing 717\n0000001 707-320\n")
    put(place / "images_variant_train.txt", "0000003 707-320\n")
    put_all(place / f"images/000000{number}.jpg" for number in (1, 2, 3))
    return place


def make_imagenet(root: Path, images: str = "imagenet/images/val") -> Path:
    """ImageNet's folders for three classes, two images each, and classnames.txt."""
    put_all(root / images / wnid / f"{wnid}_{n}.JPEG" for wnid in WNIDS for n in (2, 1))
    put(root / "imagenet/classnames.txt", CLASS_NAMES)
    return root / images


def make_imagenet_v2(root: Path) -> Path:
    """ImageNet-V2's numbered folders for three classes."""
    images = root / "imagenetv2/imagenetv2-matched-frequency-format-val"
    put_all(images / str(label) / f"image{label}.jpeg" for label in (0, 1, 2))
    put(root / "imagenetv2/classnames.txt", CLASS_NAMES)
    return images


def put_all(paths: Iterable[Path]) -> None:
    """An image at each of the paths."""
    for path in paths:
        put(path)


def split_of(**per_class: int) -> dict[str, list[list[Any]]]:
    """The content of a split file with so many images of each of two classes in each split."""
    return {
        split: [
            [f"{name}/{split}{n}.jpg", k, name] for k, name in enumerate("ab") for n in range(count)
        ]
        for split, count in per_class.items()
    }
