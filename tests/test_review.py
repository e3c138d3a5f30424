"""Answers are reviewed, corrected and learnt from: the way of a person with a folder of images."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from crg.predict import review
from crg.predict.answers import read_answers
from crg.predict.corrections import read_corrections
from crg.shapes import shape_images
from made_files import noise
from processes import called

SHAPES = shape_images("night", 4, 96, seed=1)
CLASSES = ",".join(SHAPES.class_names)
TRUTH = {
    f"in/{number:03}.png": SHAPES.class_names[label]
    for number, label in enumerate(SHAPES.labels or ())
}


@pytest.fixture(scope="module")
def shapes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of rendered shapes in ``in``, with the answers to them and their page."""
    place = tmp_path_factory.mktemp("shapes")
    (place / "in").mkdir()
    for path, source in zip(TRUTH, SHAPES.sources, strict=True):
        source.draw().save(place / path)  # type: ignore[union-attr]
    with contextlib.chdir(place):
        predict("in", "--out", "answers.jsonl")
        called("review", "answers.jsonl")
    return place


@pytest.fixture
def folder(shapes: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder as working directory; files that a test adds are removed."""
    monkeypatch.chdir(shapes)
    known = set(shapes.rglob("*"))
    yield shapes
    for path in sorted(set(shapes.rglob("*")) - known, reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()


def predict(*words: str) -> Result:
    """``crg predict`` with the bundled model."""
    return called("predict", *words, "--model", "mini", "--classes", CLASSES)


def labels(path: str) -> dict[str, str]:
    """Label by image."""
    return {line["path"]: line["label"] for line in read_answers(Path(path))}


def content(path: str) -> dict[str, Any]:
    """The data that the script of a page reads."""
    [text] = re.findall(r'id="content">(.*?)</script>', Path(path).read_text(), re.DOTALL)
    known: dict[str, Any] = json.loads(text)
    return known


def write_corrections(path: str, said: dict[str, str]) -> None:
    """A file as the page writes it."""
    lines = [json.dumps({"path": image, "label": label}) for image, label in said.items()]
    Path(path).write_text("\n".join(lines) + "\n")


def test_corrections_are_final_and_teach_the_rest(folder: Path) -> None:
    """Corrected images keep their label, others get better, and the next page says what changed."""
    first = labels("answers.jsonl")
    wrong = [path for path in first if first[path] != TRUTH[path]]
    said = {path: TRUTH[path] for path in wrong[::2]}
    write_corrections("corrections.jsonl", said)
    predict("in", "--corrections", "corrections.jsonl", "--out", "new.jsonl")
    second = labels("new.jsonl")
    assert {path: second[path] for path in said} == said and second.keys() == first.keys()
    rest = first.keys() - said.keys()
    assert sum(second[p] == TRUTH[p] for p in rest) > sum(first[p] == TRUTH[p] for p in rest)
    called("review", "new.jsonl", "--before", "answers.jsonl", "--out", "new.html")
    images = content("new.html")["images"]
    changed = {path: first[path] for path in first if first[path] != second[path]}
    assert {image["path"]: image["was"] for image in images if "was" in image} == changed
    assert {image["path"] for image in images if image.get("corrected")} == said.keys()


def test_a_corrected_line_says_so(folder: Path) -> None:
    """It comes first, is certain, under the name that corrections give it; the state knows it."""
    image = str(folder / next(iter(TRUTH)))
    write_corrections("one.jsonl", {image: SHAPES.class_names[3]})
    predict("in", "--passes", "1", "--corrections", "one.jsonl", "--out", "new.csv")
    line, *others = read_answers(Path("new.csv"))
    assert line == {"path": image, "label": SHAPES.class_names[3], "probability": 1.0,
                    "step": 0, "corrected": True}  # fmt: skip
    assert [each["step"] for each in others] == list(range(1, len(TRUTH)))
    assert [each["path"] for each in others] == list(TRUTH)[1:]  # it is not asked about again
    one, other = (Path(f"{name}.resume/state") for name in ("new.csv", "answers.jsonl"))
    assert one.read_bytes() != other.read_bytes()


@pytest.mark.parametrize(
    ("kept", "has_state", "passes"),
    [(0, False, "1"), (1, False, "1"), (5, False, "1"), (40, False, "1"), (40, True, "1"),
     (15, False, "2")],
)  # fmt: skip
def test_a_stream_with_corrections_resumes_to_the_same_bytes(
    folder: Path, kept: int, has_state: bool, passes: str
) -> None:
    """Wherever it stopped, and even if the state was lost, corrections are learnt once."""
    images = list(TRUTH)[:20]
    write_corrections("two.jsonl", {path: TRUTH[path] for path in images[5:8]})
    words = ("--corrections", "two.jsonl", "--passes", passes)
    predict(*images, *words, "--out", "whole.jsonl")
    predict(*(images[:9] if has_state else images), *words, "--out", "cut.jsonl")
    whole, cut = Path("whole.jsonl").read_bytes(), Path("cut.jsonl").read_bytes()
    Path("cut.jsonl").write_bytes(b"".join(cut.splitlines(keepends=True)[:kept]))
    if not has_state:
        Path("cut.jsonl.resume/state").unlink(missing_ok=True)
    predict(*images, *words, "--out", "cut.jsonl", "--resume")
    assert Path("cut.jsonl").read_bytes() == whole


@pytest.mark.parametrize("passes", ["1", "2"])
def test_a_corrected_image_that_cannot_be_read_stops_nothing(folder: Path, passes: str) -> None:
    """It gets a line that says why; put back, it is learnt when the run is resumed."""
    images = list(TRUTH)[:12]
    write_corrections("some.jsonl", {path: TRUTH[path] for path in (images[2], images[5])})
    words = ("--corrections", "some.jsonl", "--passes", passes, "--out", "new.jsonl")
    shutil.copy(images[2], "copy.png")
    Path(images[2]).write_bytes(b"damaged")
    assert "1 unreadable" in predict(*images, *words).stderr
    lines = {line["path"]: line for line in read_answers(Path("new.jsonl"))}
    assert "not an image" in lines[images[2]]["error"] and len(lines) == 12
    assert lines[images[5]]["corrected"] and "corrected" not in lines[images[3]]
    state = Path("new.jsonl.resume/state").read_bytes()
    shutil.move("copy.png", images[2])
    predict(*images, *words, "--resume")
    learnt = {"path": images[2], "step": 10, "label": TRUTH[images[2]]}
    assert read_answers(Path("new.jsonl"))[-1] == {**lines[images[5]], **learnt}
    assert Path("new.jsonl.resume/state").read_bytes() != state


def test_corrections_are_read_as_people_write_them(tmp_path: Path) -> None:
    """A byte order mark, CRLF, further columns, the same line twice and formulas are fine."""
    (tmp_path / "a.csv").write_bytes(
        b"\xef\xbb\xbflabel,path,by\r\ncat,'=a.png,me\r\ncat,'=a.png,\r\n"
    )
    assert read_corrections(tmp_path / "a.csv") == {"=a.png": "cat"}
    (tmp_path / "a.jsonl").write_text('{"path": "\\udcff.png", "label": "cat"}\n\n')
    assert read_corrections(tmp_path / "a.jsonl") == {"\udcff.png": "cat"}


def test_the_page_offers_the_classes_of_the_model(folder: Path) -> None:
    """Those that crg predict was given, in their order; else those that occur, or --classes."""
    assert content("review.html")["classes"] == list(SHAPES.class_names)
    lines = Path("answers.jsonl").read_text().splitlines()[:3]
    Path("alone.jsonl").write_text("\n".join(lines) + "\n")
    called("review", "alone.jsonl", "--out", "alone.html")
    known = [json.loads(line) for line in lines]
    occur = {line[name] for line in known for name in ("label", "zero_shot_label")}
    assert content("alone.html")["classes"] == sorted(occur)
    called("review", "alone.jsonl", "--out", "alone.html", "--classes", "cat,dog")
    assert content("alone.html")["classes"] == ["cat", "dog"]


def test_a_page_of_more_images_than_it_may_show_has_the_least_sure(folder: Path) -> None:
    """The rest is counted on the page and in a note."""
    said = called("review", "answers.jsonl", "--out", "few.html", "--most", "5")
    assert f"the 5 least certain of {len(TRUTH)} images" in said.output
    shown = content("few.html")
    sure = sorted(line["probability"] for line in read_answers(Path("answers.jsonl")))
    assert [image["probability"] for image in shown["images"]] == sure[:5]
    assert shown["left_out"] == len(TRUTH) - 5


def test_corrected_and_unreadable_images_are_always_on_the_page(tmp_path: Path) -> None:
    """However sure they are: the next download must have them, and a reason must be seen."""
    lines = {name: {"path": name, "label": "cat", "probability": p, "step": 1, "corrected": p == 1}
             for name, p in (("a", 0.1), ("b", 1.0), ("c", 0.2))}  # fmt: skip
    lines["d"] = {"path": "d", "error": "d is damaged."}
    review.write(tmp_path / "page.html", lines, ["cat"], "Three of four", most=3)
    shown = content(str(tmp_path / "page.html"))["images"]
    assert [image["path"] for image in shown] == ["a", "b", "d"]


def test_tables_and_unsure_answers_are_shown(folder: Path) -> None:
    """Answers without a label are unsure, with classes to choose; of two lines the last counts."""
    predict("in", "--out", "a.csv", "--unsure-below", "0.9", "--top", "3")
    with Path("a.csv.resume/answers.jsonl").open("a") as file:
        file.write('{"path": "in/000.png", "error": "once it was unreadable."}\n')
    called("review", "a.csv", "--out", "a.html")
    images = content("a.html")["images"]
    assert [x["path"] for x in images if "error" in x] == ["in/000.png"]
    unsure = [image for image in images if "label" not in image and "error" not in image]
    assert 0 < len(unsure) < len(TRUTH) - 1 and len(images) == len(TRUTH)
    assert all(image["probability"] < 0.9 and len(image["top"]) == 3 for image in unsure)
    predict("in/001.png", "--out", "b.jsonl", "--unsure-below", "1")
    [line] = read_answers(Path("b.jsonl"))
    assert not line["label"] and len(line["top"]) == 1  # which it leans to


def test_two_passes_keep_what_was_corrected(folder: Path) -> None:
    """Corrected lines come last then, each image has one, and the others are taught by them."""
    images = list(TRUTH)[:40]
    said = {path: TRUTH[path] for path in images[:10]}
    write_corrections("ten.jsonl", said)
    words = (*images, "--passes", "2")
    predict(*words, "--out", "plain.jsonl")
    predict(*words, "--corrections", "ten.jsonl", "--out", "new.jsonl")
    lines = read_answers(Path("new.jsonl"))
    assert [line["path"] for line in lines] == [*images[10:], *images[:10]]
    assert {line["path"]: line["label"] for line in lines if line.get("corrected")} == said
    assert labels("plain.jsonl") != labels("new.jsonl")


def test_images_that_were_moved_are_found(folder: Path) -> None:
    """The page shows and exports where they are now, from where the next call learns and sorts."""
    Path("own").mkdir()
    for image in list(TRUTH)[:4]:
        shutil.copy(image, "own")
    move = ("--by", "move", "--sort-into")
    predict("own", *move, "sorted", "--out", "moved.jsonl")
    assert "no thumbnail" not in called("review", "moved.jsonl", "--out", "moved.html").output
    paths = [image["path"] for image in content("moved.html")["images"]]
    write_corrections("one.jsonl", {paths[0]: "red rippled ring"})
    predict("sorted", "--corrections", "one.jsonl", *move, "again", "--out", "new.jsonl")
    assert Path("again/red rippled ring", Path(paths[0]).name).exists()
    assert list(Path("own").iterdir()) == [] == list(Path("sorted").rglob("*.png"))
    called("review", "new.jsonl", "--before", "moved.jsonl", "--out", "new.html")
    assert len(content("new.html")["images"]) == 4


def test_missing_images_and_odd_values_do_no_harm(folder: Path) -> None:
    """A missing image gets the reason and a note, and a number that is none counts as zero."""
    Path("gone.jsonl").write_text('{"path": "a", "label": "5", "probability": NaN, "step": 1}\n')
    said = called("review", "gone.jsonl", "--out", "gone.html")
    assert "no thumbnail for 1 of 1 images" in said.output
    [image] = content("gone.html")["images"]
    assert image.pop("missing") == "a does not exist: check the path."
    assert image == {"path": "a", "label": "5", "probability": 0.0}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["none.jsonl"], "none.jsonl cannot be read"),
        (["notes.txt"], "notes.txt holds no predictions"),
        (["empty.jsonl"], "empty.jsonl holds no answers yet"),
        (["answers.jsonl", "--out", "notes.txt"], "exists and is not ours"),
        (["answers.jsonl", "--out", "no/page.html"], "no/page.html cannot be written"),
    ],
)
def test_bad_input_is_refused_in_a_sentence(folder: Path, words: list[str], said: str) -> None:
    """Nothing is written, and the remedy is named."""
    Path("notes.txt").write_text("my notes\n")
    Path("empty.jsonl").write_text("")
    assert said in called("review", *words, code=2).output
    assert Path("notes.txt").read_text() == "my notes\n"


def test_thumbnails_are_small() -> None:
    """Even noise, the hardest image to compress, stays within the limit."""
    assert len(review.thumbnail(noise(900, 700))) <= review.THUMBNAIL_BYTES
