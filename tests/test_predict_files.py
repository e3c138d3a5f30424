"""Images that arrive while we work."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from crg.predict.files import iter_arrivals
from crg.types import InputError


def watch(folder: Path, events: Sequence[Callable[[], object]], idle: float = 2.0) -> list[str]:
    """The names that a watch gives if one event happens in each pause."""
    left = list(events)

    def pause(_: float) -> None:
        if left:
            left.pop(0)()

    arrivals = iter_arrivals(lambda: sorted(folder.iterdir()), 1.0, idle, pause)
    return [path.name for path in arrivals if path is not None]


def test_images_come_once_in_the_order_of_arrival(tmp_path: Path) -> None:
    """What was there comes first, then what arrives, each once."""
    for age, name in enumerate(("later", "sooner")):
        (tmp_path / name).write_text("x")
        os.utime(tmp_path / name, (1000 - age, 1000 - age))
    arrive = [lambda: None, lambda: (tmp_path / "a").write_text("new")]
    assert watch(tmp_path, arrive) == ["sooner", "later", "a"]


def test_a_file_that_grows_has_to_wait(tmp_path: Path) -> None:
    """A file is given only when it has stayed the same from one look to the next."""
    file = tmp_path / "slow"
    grow: list[Callable[[], object]] = [lambda: file.write_text("x"), lambda: file.write_text("xx")]

    def pause(_: float) -> None:
        if grow:
            grow.pop(0)()

    arrivals = iter_arrivals(lambda: sorted(tmp_path.iterdir()), 1.0, 3.0, pause)
    assert [path.stat().st_size for path in arrivals if path is not None] == [2]


def test_a_file_that_goes_away_is_forgotten(tmp_path: Path) -> None:
    """A file that vanishes between two looks is no arrival and no error."""
    gone = tmp_path / "gone"
    gone.write_text("x")
    listed = [[gone], [gone], []]
    arrivals = iter_arrivals(
        lambda: listed.pop(0) if listed else [], 1.0, 1.0, lambda _: gone.unlink(missing_ok=True)
    )
    assert [path for path in arrivals if path is not None] == []


def test_a_file_that_changes_is_given_again(tmp_path: Path) -> None:
    """A slow copy that was taken too early comes once more when it is whole."""
    file = tmp_path / "copied"
    file.write_text("half")
    arrive = [lambda: None, lambda: None, lambda: file.write_text("half and half")]
    assert watch(tmp_path, arrive) == ["copied", "copied"]


def test_idle_time_counts_from_the_last_arrival(tmp_path: Path) -> None:
    """The watch ends only after so long without anything new."""
    arrive = [lambda: None, lambda: (tmp_path / "late").write_text("x")]
    assert watch(tmp_path, arrive, idle=3.0) == ["late"]


def test_a_folder_that_vanishes_for_a_moment_ends_no_watch(tmp_path: Path) -> None:
    """A place that is gone is empty until it is back; quiet times are announced once each."""
    image = tmp_path / "image"
    image.write_text("x")
    looks = iter([None, None, [image], [image], [image]])

    def list_now() -> list[Path]:
        found = next(looks, [image])
        if found is None:
            raise InputError("the folder does not exist: make it.")
        return found

    arrivals = list(iter_arrivals(list_now, 1.0, 3.0, lambda _: None))
    assert arrivals == [None, image, None]
