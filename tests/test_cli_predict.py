"""``crg predict`` as people call it."""

from __future__ import annotations

import csv
import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from crg.cli import main
from crg.shapes import shape_images

SHAPES = shape_images("fog", 2, 12, seed=5)
CLASSES = ",".join(SHAPES.class_names[:8])
MODEL = ("--model", "mini", "--classes", CLASSES)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with images in ``in``."""
    monkeypatch.chdir(tmp_path)
    Path("in").mkdir()
    for number, source in enumerate(SHAPES.sources):
        source.draw().save(f"in/{number:02} ä.png")  # type: ignore[union-attr]
    return tmp_path


def predict(*words: str, stdin: str | None = None) -> Result:
    """The command in this process."""
    return CliRunner().invoke(main, ["predict", *words], input=stdin)


def lines_of(outcome: Result) -> list[dict[str, Any]]:
    """Its lines, if it went well."""
    assert outcome.exit_code == 0, outcome.output
    return [json.loads(line) for line in outcome.stdout.splitlines()]


def test_a_folder_gives_a_line_per_image(folder: Path) -> None:
    """Each line has the path, both labels with probabilities, and whether they differ."""
    lines = lines_of(predict("in", *MODEL))
    assert [line["path"] for line in lines] == [f"in/{n:02} ä.png" for n in range(12)]
    for line in lines:
        assert line["label"] in CLASSES and line["zero_shot_label"] in CLASSES
        assert 0 < line["zero_shot_probability"] <= 1 and 0 < line["probability"] <= 1
        assert line["changed"] == (line["label"] != line["zero_shot_label"])


def test_every_way_to_name_images_gives_the_same(folder: Path) -> None:
    """A folder, a glob, a CSV file, single files and standard input agree on every label."""
    names = sorted(str(path) for path in Path("in").iterdir())
    Path("list.csv").write_text("path\n" + "\n".join(names) + "\n")
    runs = [
        predict("in", *MODEL),
        predict("in/*.png", *MODEL),
        predict("list.csv", *MODEL),
        predict(*names, *MODEL),
        predict("-", *MODEL, stdin="\n".join(names)),
    ]
    answers = [[(line["path"], line["label"]) for line in lines_of(run)] for run in runs]
    assert all(answer == answers[0] for answer in answers)


def test_csv_has_the_same_fields(folder: Path) -> None:
    """The lines as CSV have a header and can be read by any program."""
    outcome = predict("in", *MODEL, "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(outcome.stdout)))
    assert [row["label"] for row in rows] == [
        each["label"] for each in lines_of(predict("in", *MODEL))
    ]


def test_classes_come_from_a_file(folder: Path) -> None:
    """A file with one name per line means what the list means."""
    Path("names.txt").write_text(CLASSES.replace(",", "\n\n") + "\n", encoding="utf-8-sig")
    listed = lines_of(predict("in", "--model", "mini", "--classes", "names.txt"))
    assert listed == lines_of(predict("in", *MODEL))


def test_a_state_carries_on(folder: Path) -> None:
    """Two halves with a state between them answer as the whole."""
    whole = lines_of(predict("in", *MODEL, "--passes", "1"))
    first = lines_of(predict("in/0[0-5]*", *MODEL, "--passes", "1", "--save-state", "kept"))
    second = lines_of(predict("in/0[6-9]*", "in/1*", "--model", "mini", "--load-state", "kept"))
    assert first + second == whole


def test_resume_continues_after_a_broken_image(folder: Path) -> None:
    """A broken image stops with exit code 2; repaired, --resume completes the same file."""
    once = (*MODEL, "--passes", "1")
    lines_of(predict("in", *once, "--out", "whole.jsonl"))
    victim = Path("in/07 ä.png")
    good = victim.read_bytes()
    victim.write_bytes(good[:100])
    stopped = predict("in", *once, "--out", "parts.jsonl", "--save-state", "kept")
    assert stopped.exit_code == 2 and "07 ä.png" in stopped.stderr
    assert "Traceback" not in stopped.output
    assert len(Path("parts.jsonl").read_text().splitlines()) == 7
    victim.write_bytes(good)
    lines_of(predict("in", *MODEL, "--out", "parts.jsonl", "--save-state", "kept", "--resume"))
    whole, parts = (
        [json.loads(line) for line in Path(f"{name}.jsonl").read_text().splitlines()]
        for name in ("whole", "parts")
    )
    for one, other in zip(whole, parts, strict=True):  # other batches, so up to rounding
        assert one["probability"] == pytest.approx(other["probability"], abs=1e-4)
        same = ("path", "label", "zero_shot_label", "step")
        assert [one[field] for field in same] == [other[field] for field in same]


def test_resume_with_other_settings_is_refused(folder: Path) -> None:
    """A file of answers is not gone on with by another method, and keeps what it has."""
    lines_of(predict("in", *MODEL, "--out", "out.jsonl"))
    before = Path("out.jsonl").read_bytes()
    outcome = predict("in", *MODEL, "--out", "out.jsonl", "--resume", "--method", "tda")
    assert outcome.exit_code == 2 and "method" in outcome.stderr
    assert Path("out.jsonl").read_bytes() == before


def test_unreadable_images_can_be_skipped(folder: Path) -> None:
    """On request a broken image has its line and is counted at the end."""
    Path("in/03 ä.png").write_bytes(b"")
    outcome = predict("in", *MODEL, "--skip-unreadable")
    lines = lines_of(outcome)
    assert len(lines) == 12 and "error" in lines[3] and "label" not in lines[3]
    assert "1 unreadable" in outcome.stderr


def test_the_default_model_says_what_it_knows(folder: Path) -> None:
    """Without --model the bundled one is used, and a note says what it is good for."""
    outcome = predict("in", "--classes", CLASSES)
    assert "shapes only" in outcome.stderr and len(lines_of(outcome)) == 12
    assert "shapes only" not in predict("in", *MODEL).stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["in"], "no class names"),
        (["in", "--classes", "cat"], "at least two"),
        (["in", "--classes", "cat,cat"], "more than once"),
        (["in", "--classes", "cat,,dog"], "empty"),
        (["in", "--classes", "nowhere.txt"], "one class per line"),
        (["nowhere", *MODEL], "nowhere"),
        (["in/*.tif", *MODEL], "No images"),
        (["in", *MODEL, "--method", "crgg"], "'crg'"),
        (["in", *MODEL, "-o", "memori=3"], "memory"),
        (["in", *MODEL, "--template", "a photo."], "{}"),
        (["in", *MODEL, "--views", "0"], "--views"),
        (["in", *MODEL, "--resume"], "--out"),
        (["in", *MODEL, "--idle", "3"], "--watch"),
        (["-", "in", *MODEL], "alone"),
        (["in", *MODEL, "--save-state", "none/kept"], "folder"),
        (["in", *MODEL, "--save-state", "in"], "directory"),
        (["in", *MODEL, "--load-state", "in/00 ä.png"], "in/00 ä.png"),
        (["in", *MODEL, "--out", "none/out.jsonl"], "none/out.jsonl"),
        (["in", *MODEL, "--prompts", "both"], "descriptions"),
        (["in", "--classes", "a,b", "--model", "onnx:none"], "none"),
    ],
)
def test_mistakes_get_one_sentence(folder: Path, words: list[str], said: str) -> None:
    """Exit code 2, one sentence that names the trouble, no traceback, nothing on stdout."""
    outcome = predict(*words)
    assert outcome.exit_code == 2, outcome.output
    assert said in outcome.stderr and "Traceback" not in outcome.output
    assert outcome.stdout == ""


def test_watching_continues_as_files_arrive(folder: Path) -> None:
    """With --watch an image that arrives later gets its line; Ctrl-C ends with a saved state."""
    late = Path("in/00 ä.png").rename("late.png")
    command = [sys.executable, "-m", "crg", "predict", "in", *MODEL, "--watch",
               "--out", "out.jsonl", "--save-state", "kept"]  # fmt: skip
    environment = {**os.environ, "PYTHONUTF8": "1"}
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)
    try:
        _wait_for_lines(Path("out.jsonl"), 11, process)
        late.rename("in/late.png")
        _wait_for_lines(Path("out.jsonl"), 12, process)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130 and "12 images answered" in said
    assert json.loads(Path("out.jsonl").read_text().splitlines()[-1])["path"] == "in/late.png"
    assert Path("kept").exists()


def test_an_idle_watch_ends_by_itself(folder: Path) -> None:
    """With --idle the watch ends when nothing arrives any more."""
    assert len(lines_of(predict("in", *MODEL, "--watch", "--idle", "1"))) == 12


def _wait_for_lines(path: Path, count: int, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 120
    while not path.exists() or path.read_bytes().count(b"\n") < count:
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.1)
