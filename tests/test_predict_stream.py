"""A stream of image files, one line each, resumable at any moment; features that are kept."""

from __future__ import annotations

import itertools
from collections import Counter, deque
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from click.testing import CliRunner

import crg
from colour_encoder import COLOURS, ColourEncoder, save_image, save_stream
from crg.classifier import Classifier
from crg.cli import main
from crg.encoders.mini import Mini
from crg.predict.answers import AnswerFile, Line, read_answers
from crg.predict.sorting import Sorter
from crg.predict.stream import ImageStream
from sentences import refused_in_one_sentence

KEPT = ("--features", "kept")


@pytest.fixture
def paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Twelve images; text features are kept beside them."""
    monkeypatch.setenv("CRG_CACHE", str(tmp_path / "cache"))
    return save_stream(tmp_path / "in")


def run(
    folder: Path, paths: list[Path], stop_after: int | None = None, **more: Any
) -> Counter[str]:
    """A stream into the files of ``folder``, resumed if they are there; may be cut short."""
    folder.mkdir(exist_ok=True)
    state = folder / "state"
    known = {"state": state} if state.exists() else {"classes": list(COLOURS)}
    classifier = Classifier(ColourEncoder(), views=3, **known)
    with AnswerFile(folder / "answers.jsonl", "jsonl", resume=True) as answers:
        steps = ImageStream(classifier, answers, [state], **more).run(paths)
        deque(itertools.islice(steps, stop_after), maxlen=0)
        steps.close()  # type: ignore[attr-defined]
    return answers.counts


def lines_in(folder: Path) -> list[Line]:
    """The lines of a stream."""
    return read_answers(folder / "answers.jsonl")


@pytest.mark.parametrize(
    ("stops", "kept"), [([1], 0), ([5], 0), ([11], 0), ([4, 5], None), ([4, 5], -1)]
)
def test_a_stream_that_was_stopped_continues(
    tmp_path: Path, paths: list[Path], stops: list[int], kept: int | None
) -> None:
    """Lines and state are those of a stream never stopped, also after a crash left an old state."""
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    run(whole, paths)
    states: list[bytes] = []
    for stop_after in stops:
        run(parts, paths, stop_after)
        states.insert(0, (parts / "state").read_bytes())
    (parts / "state").unlink()
    if kept is not None:
        (parts / "state").write_bytes(states[kept])
    run(parts, paths)
    for file in ("answers.jsonl", "state"):
        assert (whole / file).read_bytes() == (parts / file).read_bytes()


def test_a_broken_image_stops_or_is_skipped(tmp_path: Path, paths: list[Path]) -> None:
    """Everything before it is kept; skipped, it gets one line, and is tried again when resumed."""
    paths[6].write_bytes(b"")
    with refused_in_one_sentence("006.png"):
        run(tmp_path, paths, strict=True)
    assert len(lines_in(tmp_path)) == 6
    for _ in range(2):
        counts = run(tmp_path, paths)
        assert (counts["answered"], counts["unreadable"]) == (11, 1)
    [bad] = [line for line in lines_in(tmp_path) if "error" in line]
    assert "006.png" in bad["path"] and "step" not in bad
    save_image(paths[6], "red")
    assert run(tmp_path, paths)["answered"] == 12


def test_a_state_from_another_stream_is_refused(tmp_path: Path, paths: list[Path]) -> None:
    """A state that has seen more than there are answers does not belong to them."""
    run(tmp_path, paths)
    answers = tmp_path / "answers.jsonl"
    answers.write_bytes(b"".join(answers.read_bytes().splitlines(keepends=True)[:5]))
    with refused_in_one_sentence("12", "5"):
        run(tmp_path, paths)


def test_an_image_that_vanished_is_reported(tmp_path: Path, paths: list[Path]) -> None:
    """An image that has a line but cannot be shown again stops the resumption."""
    run(tmp_path, paths, 5)
    (tmp_path / "state").unlink()
    paths[1].unlink()
    with refused_in_one_sentence("001.png", "put it back"):
        run(tmp_path, paths)


def test_the_state_is_saved_now_and_then(tmp_path: Path, paths: list[Path]) -> None:
    """While the stream runs, the state on disk is at most so many images old."""
    classifier = Classifier(ColourEncoder(), list(COLOURS))
    with AnswerFile(tmp_path / "answers.jsonl", "jsonl") as answers:
        stream = ImageStream(classifier, answers, [tmp_path / "state"], save_every=4)
        for number, _ in enumerate(stream.run(paths), start=1):
            assert (tmp_path / "state").exists() == (number >= 4)


def called(*words: str, status: int = 0) -> str:
    """The command in this process; what it says."""
    done = CliRunner().invoke(main, ["predict", "in", "--classes", "red,green,blue", *words])
    assert done.exit_code == status, done.output
    return done.output


def test_features_are_kept_for_other_questions(
    tmp_path: Path, paths: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another method, list of classes or threshold reads what was encoded; the rest is refused."""
    monkeypatch.chdir(tmp_path)
    Path("in/bad.png").write_bytes(b"no image")
    called(*KEPT, "--out", "1.jsonl")
    assert len(crg.read_features("kept")) == len(paths)
    monkeypatch.setattr(Mini, "encode_images", lambda *_: pytest.fail("encoded again"))
    called(*KEPT, "--out", "2.jsonl")
    assert Path("1.jsonl").read_bytes() == Path("2.jsonl").read_bytes()
    assert "bad.png" in Path("2.jsonl").read_text()
    called(*KEPT, "--out", "3.jsonl", "--method", "tda", "--classes", "red,blue")
    assert len(read_answers(Path("3.jsonl"))) == len(paths) + 1
    assert "views is 1 in the store" in called(*KEPT, "--views", "2", status=2)
    words = ("--views", "2", "--out", "4.jsonl", "--resume")  # which knows no settings yet
    assert "kept has other features" in called(*KEPT, *words, status=2)
    assert "leave it out, or --watch" in called(*KEPT, "--watch", status=2)
    save_image(Path("in/more.png"), "red")
    assert "another folder with --features" in called(*KEPT, status=2)


def test_keeping_features_can_be_stopped(
    tmp_path: Path, paths: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stop leaves no answers behind, and a resumed call needs no image that was moved."""
    monkeypatch.chdir(tmp_path)
    sort = ("--sort-into", "sorted", "--by", "move", "--passes", "1")
    words = (*KEPT, "--out", "1.jsonl", *sort)
    with mock.patch.object(Mini, "encode_images", side_effect=KeyboardInterrupt):
        called(*words, status=130)
    assert not Path("1.jsonl").exists()
    with mock.patch.object(Sorter, "put", side_effect=[*[None] * 4, KeyboardInterrupt]):
        called(*words, status=130)
    Path("in/000.png").unlink()
    called(*words, "--resume")
    assert len(read_answers(Path("1.jsonl"))) == len(paths)
