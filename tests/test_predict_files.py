"""Images by path, glob and table, and images that arrive while we work."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from colour_encoder import save_image
from crg.predict.files import iter_arrivals, iter_lines, list_images
from crg.types import InputError
from sentences import refused_in_one_sentence


def watch(folder: Path, events: Sequence[Callable[[], object]], idle: float = 2.0) -> list[str]:
    """The names that a watch gives if one event happens in each pause."""
    left = list(events)

    def pause(_: float) -> None:
        if left:
            left.pop(0)()

    arrivals = iter_arrivals(lambda: sorted(folder.iterdir()), 1.0, idle, pause)
    return [path.name for path in arrivals if path is not None]


def test_images_come_once_in_the_order_of_arrival(tmp_path: Path) -> None:
    """Images that are there come first, then those that arrive, each once."""
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


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Images at two depths, beside what is not an image."""
    for name in ("b.png", "a.PNG", "in/ner/ä ö.jpg", ".hidden.png", ".git/x.png"):
        save_image(tmp_path / name, "red")
    (tmp_path / "notes.txt").write_text("not an image")
    return tmp_path


def names(paths: list[Path], below: Path) -> list[str]:
    """Paths as they read from a folder."""
    return [path.relative_to(below).as_posix() for path in paths]


def test_folder_means_all_images_below(folder: Path) -> None:
    """A folder gives its images and those of its folders, sorted, without hidden ones."""
    assert names(list_images([str(folder)]), folder) == ["a.PNG", "b.png", "in/ner/ä ö.jpg"]


def test_globs_reach_into_folders(folder: Path) -> None:
    """A glob gives its matches that are images, sorted; two stars cross folders."""
    assert names(list_images([str(folder / "*")]), folder) == ["a.PNG", "b.png"]
    found = list_images([str(folder / "**" / "*.jpg")])
    assert names(found, folder) == ["in/ner/ä ö.jpg"]


def test_an_image_counts_once(folder: Path) -> None:
    """An image that two arguments mean is listed once, where it was first."""
    found = list_images([str(folder / "b.png"), str(folder)])
    assert names(found, folder) == ["b.png", "a.PNG", "in/ner/ä ö.jpg"]


@pytest.mark.parametrize(("suffix", "mark"), [(".csv", ","), (".tsv", "\t")])
def test_tables_are_relative_to_themselves(folder: Path, suffix: str, mark: str) -> None:
    """A table gives the files of its column path, relative to its own folder."""
    table = folder / f"list{suffix}"
    table.write_text(f"\ufefflabel{mark}path\ncat{mark}b.png\ndog{mark}in/ner/ä ö.jpg\n")
    assert names(list_images([str(table)]), folder) == ["b.png", "in/ner/ä ö.jpg"]


def test_a_named_file_is_taken_whatever_its_suffix(folder: Path) -> None:
    """A file that is named is taken; whether it is an image shows when it is read."""
    notes = (folder / "notes.txt").rename(folder / "notes.md")
    assert names(list_images([str(notes)]), folder) == ["notes.md"]


def test_a_text_file_is_a_list_of_paths(folder: Path) -> None:
    """Each line of a .txt file is a path, relative to the file; an empty file is refused."""
    (folder / "list.txt").write_text("b.png\n\n  c.png\n", encoding="utf-8-sig")
    assert names(list_images([str(folder / "list.txt")]), folder) == ["b.png", "c.png"]
    (folder / "list.txt").write_text("\n")
    with refused_in_one_sentence("names no image"):
        list_images([str(folder / "list.txt")])


def test_files_that_an_earlier_call_moved_may_be_gone(folder: Path) -> None:
    """Images that were answered may be gone; any other must be there."""
    gone = str(folder / "gone.png")
    assert names(list_images([gone], {gone}), folder) == ["gone.png"]
    with refused_in_one_sentence("does not exist"):
        list_images([gone])


def test_missing_files_are_refused(tmp_path: Path) -> None:
    """A path that leads nowhere is refused with what may be given."""
    with refused_in_one_sentence("nowhere", "standard input"):
        list_images([str(tmp_path / "nowhere")])


@pytest.mark.parametrize(
    ("content", "said"),
    [(b"file\na.png\n", "'path'"), ("path\nä.png\n".encode("utf-16"), "UTF-8"),
     (b'path\na.png\n"b.png\nc.png\n', "list.csv")],
    ids=["column", "encoding", "open quote"],
)  # fmt: skip
def test_tables_that_cannot_be_read_are_refused(tmp_path: Path, content: bytes, said: str) -> None:
    """A table needs a column path, UTF-8 and closed quotes."""
    (tmp_path / "list.csv").write_bytes(content)
    with refused_in_one_sentence(said):
        list_images([str(tmp_path / "list.csv")])


def test_lines_are_taken_one_at_a_time() -> None:
    """A list on standard input is not read ahead, and each path counts once."""
    taken: list[str] = []

    def lines() -> object:
        for line in ("a b.png\n", "\n", "c.png\r\n", "a b.png\n"):
            taken.append(line)
            yield line

    paths = iter_lines(lines())  # type: ignore[arg-type]
    assert next(paths) == Path("a b.png") and len(taken) == 1
    assert list(paths) == [Path("c.png")]
