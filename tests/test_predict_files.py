"""Images by path, glob and table, images that arrive while we work, and images that are sorted."""

from __future__ import annotations

import contextlib
import json
import os
import socket
from collections.abc import Callable, Container
from pathlib import Path
from typing import Any

import pytest

from colour_encoder import save_image
from crg.images.reading import read_image
from crg.predict.files import iter_arrivals, iter_lines, list_images
from crg.predict.sorting import Sorter, check_apart, folder_names
from crg.types import InputError
from processes import called
from sentences import check_refused, refused_in_one_sentence


def watch(folder: Path, *events: Callable[[], object], idle: float = 2.0) -> list[Any]:
    """Name and size of what a watch gives if one event happens in each pause."""
    left = list(events)

    def sleep(_: float) -> None:
        if left:
            left.pop(0)()

    arrivals = iter_arrivals(lambda: sorted(folder.iterdir()), 1.0, idle, sleep)
    return [(path.name, path.stat().st_size) for path in arrivals if path is not None]


NOTHING = int  # arrives


def test_images_come_once_in_the_order_of_arrival(tmp_path: Path) -> None:
    """Images that are there come first, then those that arrive, each once."""
    for age, name in enumerate(("later", "sooner")):
        (tmp_path / name).write_text("x")
        os.utime(tmp_path / name, (1000 - age, 1000 - age))
    given = watch(tmp_path, NOTHING, lambda: (tmp_path / "a").write_text("new"))
    assert given == [("sooner", 1), ("later", 1), ("a", 3)]


def test_a_file_waits_until_it_stays_the_same_and_comes_again_if_it_changes(tmp_path: Path) -> None:
    """So a slow copy that was taken too early comes once more; idle time counts from the last."""
    file = tmp_path / "slow"
    grow = [lambda text=text: file.write_text(text) for text in ("x", "xx")]
    assert watch(tmp_path, *grow, idle=3.0) == [("slow", 2)]
    again = watch(tmp_path, NOTHING, NOTHING, lambda: file.write_text("half and half"))
    assert again == [("slow", 2), ("slow", 13)]


def test_what_vanishes_for_a_moment_ends_no_watch(tmp_path: Path) -> None:
    """A file that goes away is no arrival; a lost folder is empty; quiet times come once each."""
    image, gone = tmp_path / "image", tmp_path / "gone"
    image.write_text("x")
    looks = iter([None, [gone], [image], [image], [image]])

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
    (tmp_path / "notes.md").write_text("not an image")
    return tmp_path


def listed(folder: Path, *arguments: str, gone: Container[str] = ()) -> list[str]:
    """The images that arguments mean, all as they read from a folder."""
    found = list_images([str(folder / each) for each in arguments], gone)
    return [path.relative_to(folder).as_posix() for path in found]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([""], ["a.PNG", "b.png", "in/ner/ä ö.jpg"]),
        (["*"], ["a.PNG", "b.png"]),
        (["**/*.jpg"], ["in/ner/ä ö.jpg"]),
        (["b.png", ""], ["b.png", "a.PNG", "in/ner/ä ö.jpg"]),
        (["notes.md"], ["notes.md"]),
        (["list.txt"], ["b.png", "c.png"]),
        (["list.csv"], ["b.png", "in/ner/ä ö.jpg"]),
        (["list.tsv"], ["b.png", "in/ner/ä ö.jpg"]),
    ],
    ids=["folder", "glob", "two stars", "twice", "any suffix", "list", "CSV", "TSV"],
)
def test_arguments_mean_images(folder: Path, arguments: list[str], expected: list[str]) -> None:
    """Folders and globs give images, sorted, none hidden, each once; lists those beside them."""
    table = "\ufefflabel,path\ncat,b.png\ndog,in/ner/ä ö.jpg\n"
    (folder / "list.csv").write_text(table)
    (folder / "list.tsv").write_text(table.replace(",", "\t"))
    (folder / "list.txt").write_text("b.png\n\n  c.png\n", encoding="utf-8-sig")
    assert listed(folder, *arguments) == expected


def test_files_that_an_earlier_call_moved_may_be_gone(folder: Path) -> None:
    """A file that was answered may be gone; of an image its line says so, else it is refused."""
    assert listed(folder, "gone", gone={str(folder / "gone")}) == ["gone"]
    assert listed(folder, "gone.png") == ["gone.png"]
    check_refused(("gone does not exist", "standard input"), listed, folder, "gone")


@pytest.mark.parametrize(
    ("content", "said"),
    [(b"file\na.png\n", "'path'"), ("path\nä.png\n".encode("utf-16"), "UTF-8"),
     (b'path\na.png\n"b.png\nc.png\n', "list.csv"), (b"\n", "names no image")],
    ids=["column", "encoding", "open quote", "empty"],
)  # fmt: skip
def test_lists_that_cannot_be_read_are_refused(tmp_path: Path, content: bytes, said: str) -> None:
    """A table needs a column path, UTF-8 and closed quotes; a list of paths needs a path."""
    name = "list.txt" if said == "names no image" else "list.csv"
    (tmp_path / name).write_bytes(content)
    check_refused(said, listed, tmp_path, name)


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


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes as files")
@pytest.mark.parametrize("more", [(), ("--watch", "0.6")], ids=["folder", "watch"])
def test_nothing_that_cannot_be_read_stops_the_work(
    more: tuple[str, ...], here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pipe, a socket, a device, a folder without permission and a lost file get a line each."""
    scandir = os.scandir

    def without_permission(path: Any) -> Any:
        if str(path).endswith("shut"):
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    for name in ("in/1.png", "in/shut/2.png", "in/3.png"):
        save_image(Path(name), "red")
    monkeypatch.setattr(os, "scandir", without_permission)
    os.mkfifo("in/0.png")
    Path("in/2.png").symlink_to("/dev/zero")
    Path("list.txt").write_text("in/3.png\nin/lost.png")
    words = ["/dev/null", "list.txt", "--classes", "red circle,blue square", *more]
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("in/4.png")
        done = called("predict", "in", *words, *["gone.png"][len(more) :])
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    errors = {line["path"]: line["error"] for line in lines if "error" in line}
    odd = dict.fromkeys(("in/0.png", "in/2.png", "in/4.png", "/dev/null"), "not a regular file")
    odd["in/shut"] = "permission"
    if not more:  # a watch waits for what is not there
        odd |= dict.fromkeys(("in/lost.png", "gone.png"), "does not exist")
    assert errors.keys() == odd.keys() and all(why in errors[name] for name, why in odd.items())
    steps = {line["path"]: line["step"] for line in lines if "step" in line}
    assert steps == {"in/1.png": 1, "in/3.png": 2}
    assert f"{len(odd)} unreadable" in done.stderr
    Path("loop.png").symlink_to("loop.png")
    for name in ("gone.png", "loop.png", "in/shut/*.png", "in/*/*/*.png", "in/s**/*.png"):
        assert called("predict", name, *words[2:4], code=1).stderr.endswith("1 unreadable.\n")


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
def test_sorted_images_are_not_read_again(argument: str, refused: bool, here: Path) -> None:
    """A folder that the next call would search is refused."""
    Path("in").mkdir()
    with refused_in_one_sentence("beside") if refused else contextlib.nullcontext():
        check_apart(Path("in/sorted"), [argument])


@pytest.mark.parametrize("name", ["x" * 300 + ".png", "null\0byte.png"])
def test_names_that_no_file_system_has_are_refused(name: str) -> None:
    """A name that is too long, or has a null byte: an image, or no list of images."""
    check_refused("cannot be read", read_image, *list_images([name]))
    check_refused("cannot be read", list_images, [name.removesuffix(".png")])
