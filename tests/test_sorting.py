"""Images sorted into a folder per class."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from colour_encoder import save_image
from crg.predict.sorting import Sorter, check_apart, folder_names
from sentences import refused_in_one_sentence


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    """A name that is taken gets a number."""
    sorter = Sorter(tmp_path / "sorted", "copy", ["red"])
    for number, name in enumerate(("a", "b", "c")):
        path = save_image(tmp_path / name / "x.png", "red", noise=number)
        sorter.put(path, sorter.place_for(path, "red"))
    found = sorted(path.name for path in (tmp_path / "sorted" / "red").iterdir())
    assert found == ["x 2.png", "x 3.png", "x.png"]


def test_a_move_that_ended_between_two_disks_is_completed(tmp_path: Path) -> None:
    """If both files are there and the same, the original goes; if they differ, both stay."""
    path = save_image(tmp_path / "x.png", "red")
    place = save_image(tmp_path / "sorted" / "red" / "x.png", "blue")
    line = {"path": str(path), "sorted_to": str(place)}
    sorter = Sorter(tmp_path / "sorted", "move", ["red"])
    sorter.repair([line])
    assert path.exists() and place.exists()
    place.write_bytes(path.read_bytes())
    sorter.repair([line])
    assert not path.exists() and place.exists()


def test_folders_of_odd_classes_are_allowed_everywhere() -> None:
    """Separators, dots, reserved and long names give distinct folders below the one asked for."""
    odd = ["a/b", "a_b", "A_B", "..", ".", "CON", "nul.txt", "x" * 300, " b ", "unsure", "?", "é:"]
    folders = folder_names(odd)
    assert len({each.casefold() for each in folders.values()}) == len(odd) + 2
    for each in folders.values():
        assert Path(each).name == each and each.strip(" .") == each and len(each.encode()) <= 110
        assert each.casefold() not in ("con", "nul.txt")


@pytest.mark.parametrize(
    ("argument", "refused"),
    [("in", True), ("in/*/*.png", True), ("in/**/*.png", True), ("in/*.png", False)],
)
def test_sorted_images_are_not_read_again(
    argument: str, refused: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder that the next call would search is refused."""
    monkeypatch.chdir(tmp_path)
    Path("in").mkdir()
    with refused_in_one_sentence("beside") if refused else contextlib.nullcontext():
        check_apart(Path("in/sorted"), [argument])
