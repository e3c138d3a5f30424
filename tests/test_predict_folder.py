"""A folder of images: what can be acted on, sorted images, two passes, and stops in any of them."""

from __future__ import annotations

import csv
import json
import shutil
import sys
import threading
from collections import Counter
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from click.testing import Result
from PIL import Image

import crg
from colour_encoder import ColourEncoder, save_image, save_stream, use_colours
from crg.answer import COLUMNS
from crg.classifier import Answer, Classifier
from crg.cli.progress import Display
from crg.predict.answers import AnswerFile, read_answers
from crg.predict.sorting import Sorter
from documents import ROOT, code_blocks, commands
from processes import called

NAMES = ("--classes", "red,green,blue")
N_IMAGES = 12


@pytest.fixture(autouse=True)
def folder(here: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with images in ``in``, and a model that knows colours."""
    use_colours(monkeypatch)
    save_stream(Path("in"), N_IMAGES)
    for name in ("000", "005"):  # between red and green
        Image.new("RGB", (24, 20), (125, 115, 35)).save(f"in/{name}.png")
    return here


def finished(*words: str, images: tuple[str, ...] = ("in",), **more: Any) -> Result:
    """``crg predict``, which ends well or with the exit code that is given."""
    return called("predict", *images, *NAMES, *words, **more)


def refused(said: str, *words: str) -> None:
    """The command ends with exit code 2, a sentence that has these words, and no answers."""
    outcome = finished(*words, code=2)
    assert said in outcome.stderr and outcome.stdout == "" and "Traceback" not in outcome.stderr
    assert "\x1b" not in outcome.stderr  # which a terminal would obey


def stopped(count: int, *words: str, after: bool = True) -> Result:
    """The command, stopped by Ctrl-C at this image, before or after its line is written."""
    answer, calls = AnswerFile.answer, iter(range(1, 100))

    def stopping(self: AnswerFile, path: str, given: Answer) -> None:
        number = next(calls)
        if number != count or after:
            answer(self, path, given)
        if number == count:
            raise KeyboardInterrupt

    with mock.patch.object(AnswerFile, "answer", stopping):
        return finished(*words, code=130)


FILES = {  # of other people
    "notes.txt": b"my notes\n1\n", "notes.csv": b"my notes\n1\n", "table.csv": b"a,b\n1,2\n",
    "head.csv": b"a,b\n", "thesis.jsonl": b"once upon\n", "data.jsonl": b'{"a": 1}\n',
    "table.parquet": b"PAR1", "c.csv": b"path,lable\nin/001.png,red\n", "there.npy": b"other",
    "wolf.csv": b"path,label\nin/000.png,wolf\n", "gone.csv": b"path,label\nno.png,red\n",
    "two.csv": b"path,label\nin/000.png,a\nin/000.png,b\n", "no.csv": b"path,label\nin/000.png\n",
    "empty.csv": b"path,label\n", "cell.csv": b"name,class\nin/000.png,a\n",
    "tasks.json": b'[{"data": {}}]', "kind.jsonl": b'{"path": "a", "label": "b", "step": "x"}\n',
    "half.jsonl": b'{"path": "a", "label": "\\ud800", "step": 1}\n',  # of a letter
}  # fmt: skip
LINES = [name for name in FILES if name.endswith(".jsonl")]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--out", "a.xlsx"], ".parquet"),
        (["--sort-into", "in/sorted"], "beside"),
        (["--sort-into", "."], "beside"),
        (["--passes", "2", "--watch"], "--passes"),
        (["--passes", "2", "--load-state", "x"], "--load-state"),
        (["--unsure-below", "2"], "--unsure-below"),
        (["--text-features", "x.npz", "--template", "a {}"], "leave it out, or --template"),
        (["--out", "same.csv", "--save-state", "same.csv"], "has another use"),
        (["in/000.png", "--save-state", "in/000.png"], "has another use"),
        (["--save-state", "notes.txt", "--overwrite"], "not a saved state"),
        (["--out", "notes.csv", "--resume"], "is gone, without which"),
        *((["--resume", "--out", name], "holds no predictions") for name in LINES),
        (["--out", "notes.csv"], "exists already"),
        (["--out", "notes.txt"], "end it with .jsonl"),
        *((["--overwrite", "--out", name], "not a file of answers") for name in list(FILES)[2:7]),
        (["--classes", "cat;dog"], "separated by commas"),
        (["--out", "-"], "end it with .jsonl"),
        (["--clases", "a"], "did you mean '--classes' or "),
        (["--metod", "crg"], "did you mean '--method'?"),
        (["--sort-into", "sorted", "--views", "1000000"], "views"),
        (["--zzz"], "There is no option --zzz: see"),
        (["--corrections", "c.csv"], "required field `label`"),
        (["--corrections", "wolf.csv"], "There is no class 'wolf'"),
        (["--corrections", "two.csv"], "gives in/000.png two labels, 'a' and 'b'"),
        (["--corrections", "no.csv"], "holds no labels"),
        (["--corrections", "empty.csv"], "holds no labels"),
        (["--corrections", "cell.csv"], "required field `path`"),
        (["--corrections", "tasks.json"], "holds no labels"),
        (["--truth", "gone.csv"], "none of the images a label that is a class"),
        (["--truth", "missing.csv"], "missing.csv cannot be read"),
        (["--export", "label-studio"], "name it with --out"),
        (["--out", "a.csv", "--probabilities", "there.npy"], "exists already"),
        (["--out", "a.csv", "--probabilities", "p.npz"], "end its name with .npy"),
        (["--classes", "cat"], "at least two"),
        (["--classes", "a,b\nc"], "--classes"),
        (["--classes", 'a,"b'], "--classes"),
        (["--classes", "nowhere.txt"], "one class per line"),
        (["nowhere"], "nowhere"),
        (["\x1bgone"], "gone does not exist"),
        (["--method", "crgg"], "'crg'"),
        (["-o", "memori=3"], "memory"),
        (["-"], "alone"),
        (["--save-state", "none/kept"], "folder"),
        (["--load-state", "in/000.png"], "in/000.png"),
        (["--out", "none/out.jsonl"], "none/out.jsonl"),
    ],
    ids=lambda each: " ".join(each) if isinstance(each, list) else "",
)
def test_what_cannot_be_is_refused(words: list[str], said: str) -> None:
    """Slips get a sentence with the remedy; files of other kinds and images stay as they are."""
    for name, content in FILES.items():
        Path(name).write_bytes(content)
    before = {path: path.is_file() and path.read_bytes() for path in Path().rglob("[!.]*")}
    refused(said, *words)
    after = {path: path.is_file() and path.read_bytes() for path in Path().rglob("[!.]*")}
    assert after == before


def test_overwrite_removes_nothing_before_all_is_checked() -> None:
    """A slip in another option leaves the old answers, and what continues them, in place."""
    finished("--out", "a.csv")
    before = Path("a.csv").read_bytes()
    Path("wrong.csv").write_text("path,label\nin/001.png,purple\n")
    for words in (("--method", "anchord"), ("--corrections", "wrong.csv"), ("--views", "1000000")):
        finished("--out", "a.csv", "--overwrite", *words, code=2)
        assert Path("a.csv").read_bytes() == before and Path("a.csv.resume").is_dir()
    finished("--out", "a.csv", "--overwrite")
    assert Path("a.csv").read_bytes() == before


def test_top_and_unsure_answers() -> None:
    """The best classes are listed; below the threshold the label is empty, and both are counted."""
    outcome = finished("--out", "a.jsonl", "--top", "2", "--unsure-below", "0.9")
    lines = read_answers(Path("a.jsonl"))
    for line in lines:
        best, second = line["top"]
        assert best["probability"] == line["probability"] >= second["probability"]
        assert line["unsure"] == (line["probability"] < 0.9)
        assert line["label"] == ("" if line["unsure"] else best["label"])
        assert line["changed"] == (best["label"] != line["zero_shot_label"])
    changed, unsure = (sum(line[name] for line in lines) for name in ("changed", "unsure"))
    assert 0 < unsure < N_IMAGES
    assert f"{changed} of them changed by adaptation, {unsure} unsure" in outcome.stderr
    for name, count in Counter(line["label"] or "(unsure)" for line in lines).items():
        assert f"  {name}" in outcome.stderr and f" {count}\n" in outcome.stderr


def test_tables_have_the_same_answers() -> None:
    """CSV and Parquet have the rows of the JSON lines, in columns, errors and top classes too."""
    parquet: Any = pytest.importorskip("pyarrow.parquet")
    Path("in/003.png").write_bytes(b"")
    for out in ("a.jsonl", "a.csv", "a.parquet"):
        finished("--out", out, "--top", "2", "--unsure-below", "0.9", "--sort-into", f"by/{out}")
    lines = read_answers(Path("a.jsonl"))
    rows = parquet.read_table("a.parquet").to_pylist()
    kept = [{name: value for name, value in row.items() if value is not None} for row in rows]
    assert kept == [json.loads(json.dumps(line).replace("a.jsonl", "a.parquet")) for line in lines]
    with Path("a.csv").open(newline="") as file:
        cells = list(csv.DictReader(file))
    assert list(cells[0]) == [*COLUMNS, "unsure", "sorted_to", "top_1", "top_1_probability",
                              "top_2", "top_2_probability"]  # fmt: skip
    for line, row in zip(lines, cells, strict=True):
        for place, best in enumerate(line.pop("top", ()), 1):
            line |= {f"top_{place}": best["label"], f"top_{place}_probability": best["probability"]}
        filled = {name: cell for name, cell in row.items() if cell or name in line}
        assert filled == {name: str(value).replace("a.jsonl", "a.csv")
                          for name, value in line.items()}  # fmt: skip


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("count", [5, N_IMAGES + 5])
@pytest.mark.parametrize("out", ["a.csv", "a.parquet"])
def test_two_passes_stopped_in_either_give_the_same(count: int, after: bool, out: str) -> None:
    """Stopped in either pass, --resume gives bytes and summary of a run that was never stopped."""
    if out.endswith("parquet"):
        pytest.importorskip("pyarrow")
    passes = ("--passes", "2", "--views", "3")
    whole = finished(*passes, "--out", f"whole-{out}", "--save-state", "whole.crg").stderr
    words = (*passes, "--out", out, "--save-state", "parts.crg")
    assert "--resume continues" in stopped(count, *words, after=after).stderr
    assert finished(*words, "--resume").stderr in whole  # the summary of all lines
    assert Path(out).read_bytes() == Path(f"whole-{out}").read_bytes()
    assert Path("parts.crg").read_bytes() == Path("whole.crg").read_bytes()
    assert not Path(f"{out}.resume/features").exists()


def test_a_broken_image_is_skipped() -> None:
    """One line in its place, in both passes, which count no step twice; it is tried again."""
    Path("in/003.png").write_bytes(b"")
    firsts = []
    for passes, out in (("2", "two.csv"), ("1", "one.csv")):
        outcome = finished("--passes", passes)
        for more in ((), ("--resume",)):
            assert "1 unreadable" in finished("--passes", passes, "--out", out, *more).stderr
        lines = [json.loads(line) for line in outcome.stdout.splitlines()]
        assert lines == read_answers(Path(out)) and len(lines) == N_IMAGES
        steps = [line.get("step") for line in lines]
        assert "error" in lines[3] and steps == [1, 2, 3, None, *range(4, N_IMAGES)]
        firsts.append(lines[0])
    assert firsts[0]["zero_shot_probability"] == firsts[1]["zero_shot_probability"]
    assert firsts[0]["probability"] != firsts[1]["probability"]  # which had nothing before it
    save_image(Path("in/003.png"), "red")
    assert f"{N_IMAGES} images answered" in finished("--out", "one.csv", "--resume").stderr


def test_images_after_the_first_pass_are_left_out() -> None:
    """What comes when the second pass has begun is said to be left out."""
    finished("--passes", "2", "--out", "a.csv")
    before = Path("a.csv").read_bytes()
    save_image(Path("in/new.png"), "red")
    assert "--overwrite" in finished("--out", "a.csv", "--resume").stderr
    assert Path("a.csv").read_bytes() == before


@pytest.mark.parametrize(
    ("words", "passes", "stdin"),
    [((), "2", None), (("--method", "tda"), "1", None), (("--load-state", "fresh.crg"), "1", None),
     ((), "1", "in/000.png\nin/001.png\nin/002.png\n")],
    ids=["folder", "tda", "load-state", "standard input"],
)  # fmt: skip
def test_a_folder_is_read_twice_where_that_helps(
    words: tuple[str, ...], passes: str, stdin: str | None
) -> None:
    """By default: for a method that gains by it, and images that are all there at the start."""
    Classifier(ColourEncoder(), NAMES[1].split(",")).save("fresh.crg")
    images = ("in",) if stdin is None else ("-",)
    for name, more in (("default", ()), ("asked", ("--passes", passes))):
        finished(*words, *more, "--out", f"{name}.jsonl", images=images, input=stdin)
    assert Path("default.jsonl").read_bytes() == Path("asked.jsonl").read_bytes()
    assert Path("default.jsonl.resume/first.jsonl").exists() == (passes == "2")


@pytest.mark.parametrize("passes", ["1", "2"])
def test_resume_keeps_the_passes_of_the_file(passes: str) -> None:
    """A file continues with as many passes as it was begun with, and refuses another number."""
    stopped(5, "--out", "a.jsonl", "--passes", passes)
    other = {"1": "2", "2": "1"}[passes]
    refused("another value of passes", "--out", "a.jsonl", "--resume", "--passes", other)
    if passes == "2":  # a watch never gets to the second
        refused("leave out --watch", "--out", "a.jsonl", "--resume", "--watch")
    finished("--out", "a.jsonl", "--resume")
    assert len(read_answers(Path("a.jsonl"))) == N_IMAGES


def test_a_stop_between_two_images_saves_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C outside of the stream, as while progress is drawn, still saves what was learnt."""
    for words in (("--passes", "1", "--out", "a.jsonl"), ("--save-state", "kept.crg")):
        advance = mock.Mock(side_effect=[None, None, KeyboardInterrupt])
        monkeypatch.setattr(Display, "advance", advance)
        outcome = finished(*words, code=130)
        assert outcome.stdout == ""
    assert "What was learnt is in kept.crg" in outcome.stderr
    assert crg.load("a.jsonl.resume/state").n_steps == crg.load("kept.crg").n_steps == 3
    assert not Path("a.jsonl.resume/journal").exists()  # the state has it all


def test_an_image_that_vanished_is_reported() -> None:
    """An image that has a line but cannot be shown again stops the resumption."""
    words = ("--passes", "1", "--out", "a.jsonl")
    stopped(5, *words)
    Path("a.jsonl.resume/journal").unlink()
    Path("in/001.png").unlink()
    refused("put it back", *words, "--resume")


def test_progress_names_the_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each pass has its own bar, which counts all images."""
    bars: list[Display] = []
    monkeypatch.setattr(Display, "__exit__", lambda self, *_: bars.append(self))
    assert "shapes only" in finished().stderr  # a note on the model that nobody has named
    assert "shapes only" not in finished("--passes", "1", "--model", "mini").stderr
    names = ("first pass", "second pass", "images")
    assert [(each._what, each._total) for each in bars] == [(name, N_IMAGES) for name in names]


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("by", ["copy", "link", "move"])
def test_sorting_continues_without_repeating_or_losing(by: str, after: bool) -> None:
    """Stopped between a line and its file, or between images, every image is sorted once."""
    words = ("--out", "a.jsonl", "--sort-into", "sorted", "--by", by, "--unsure-below", "0.9",
             "--passes", "1")  # fmt: skip
    original = {path.name: path.read_bytes() for path in Path("in").iterdir()}
    if after:
        stopped(5, *words)
    else:
        with mock.patch.object(Sorter, "put", side_effect=KeyboardInterrupt):
            finished(*words, code=130)
    finished(*words, "--resume")
    finished(*words, "--resume")  # nothing is left to do
    lines = read_answers(Path("a.jsonl"))
    assert len(lines) == N_IMAGES
    placed = sorted(path for path in Path("sorted").rglob("*.png"))
    assert sorted(Path(line["sorted_to"]) for line in lines) == placed
    for line in lines:
        place = Path(line["sorted_to"])
        assert place.parent.name == (line["label"] or "unsure")
        assert place.read_bytes() == original[Path(line["path"]).name]
        assert Path(line["path"]).exists() == (by != "move")
        assert place.is_symlink() == (by == "link")


def test_other_options_do_not_continue_a_file() -> None:
    """A file that was begun with other columns, folders or methods is refused and stays."""
    finished("--out", "a.csv", "--top", "2")
    before = Path("a.csv").read_bytes()
    Path("one.csv").write_text("path,label\nin/001.png,red\n")
    for said, *words in (("other", "--sort-into", "sorted"), ("anchored", "--method", "tda"),
                         ("of corrections", "--top", "2", "--corrections", "one.csv")):  # fmt: skip
        refused(said, "--out", "a.csv", "--resume", *words)
        assert Path("a.csv").read_bytes() == before


def test_a_state_carries_on() -> None:
    """Two halves with a state between them answer as the whole, by its order of the classes.

    A note says which classes have come and gone.
    """
    Path("names.txt").write_text("red\n\ngreen\nblue\n", encoding="utf-8-sig")
    whole = finished("--passes", "1", "--classes", "names.txt").stdout
    first = finished("--passes", "1", "--save-state", "kept", images=("in/00[0-5]*",)).stdout
    rest = ("in/00[6-9]*", "in/01*")
    second = finished("--load-state", "kept", "--classes", "blue,green,red", images=rest).stdout
    assert first + second == whole
    other = finished("--load-state", "kept", "--classes", "red,grey", "--save-state", "two")
    assert "added grey; removed green, blue" in other.stderr
    kept = crg.load("two")
    assert kept.task.class_names == ("red", "grey") and kept.n_steps == 6 + N_IMAGES


def test_what_is_there_is_refused_before_the_model_is_loaded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A file of answers that exists, and a format whose library is missing, cost no time."""
    Path("a.csv").write_text("")
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    monkeypatch.setattr("crg.predict.job.Classifier", lambda **_: pytest.fail("loaded"))
    for name, said in (("a.csv", "exists already"), ("a.parquet", ".[parquet]")):
        refused(said, "--out", name)


def test_a_watch_continues_as_files_arrive() -> None:
    """A late image gets its line, and a note says when none is waiting."""
    arrive = threading.Timer(1.2, lambda: shutil.copy("in/000.png", "in/late.png"))
    arrive.start()
    words = ("--watch", "2", "--out", "a.jsonl", "--save-state", "kept")
    said = finished(*words).stderr
    arrive.join()
    assert "watching in, 13 answered." in said
    assert read_answers(Path("a.jsonl"))[-1]["path"] == "in/late.png"
    assert crg.load("kept").n_steps == N_IMAGES + 1


def test_documented_commands_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """The commands of docs/command-line.md on rendered shapes do what they say."""
    pytest.importorskip("pyarrow")
    monkeypatch.setattr("crg.predict.job.Classifier", Classifier)
    page, made = ROOT / "docs" / "command-line.md", dict[str, Any]()
    exec(code_blocks(page, "python")[0], made)
    corrected = {"path": "shapes/00.png", "label": made["shapes"].class_names[-1]}
    Path("corrections.jsonl").write_text(json.dumps(corrected))
    for _, *words in commands(page):
        if words[:2] == ["predict", "shapes"]:
            assert "40 images answered" in called(*words).stderr
        elif words[:1] == ["review"]:
            called(*words)
    assert sum(path.is_symlink() for path in Path("sorted").rglob("*.png")) == 40
    assert Path("first.csv.label-studio.xml").exists() and Path("first.npy").exists()
    assert any(corrected.items() <= line.items() for line in read_answers(Path("second.jsonl")))
    assert '"compared": true' in Path("changes.html").read_text()
