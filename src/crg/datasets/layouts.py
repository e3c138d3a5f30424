"""How the files of a catalogued dataset are laid out, for people."""

from __future__ import annotations

from crg.datasets.catalog import Entry


def layout(entry: Entry) -> list[str]:
    """The paths below the root that the reader wants, each with where to get it.

    >>> from crg.datasets.catalog import get_entry
    >>> layout(get_entry("stanfordcars"))[0]
    'stanford_cars/...: the images, as the split file names them'
    """
    place = f"{entry.folders[0]}/{entry.images[0]}/".replace("/./", "/")
    lines = {
        "split": f"{place}...: the images, as the split file names them",
        "variants": f"{place}0034309.jpg, ...",
        "wnid": f"{place}n01440764/..., a folder per class",
        "numbered": f"{place}0/... to {entry.classes - 1}/...",
    }
    folders = entry.split_folders or {"": ""}
    images = lines[entry.reader]
    found = [images.replace("{split}", each) for each in folders.values()]
    return [*found, *_lists(entry)]


def _lists(entry: Entry) -> list[str]:
    folder = entry.folders[0]
    if entry.reader == "variants":
        return [f"{folder}/variants.txt", f"{folder}/images_variant_test.txt (train, val)"]
    if entry.split_file:
        return [f"{folder}/{entry.split_file} from {entry.split_url}"]
    return [f"{folder}/classnames.txt from {entry.names_url}"]
