"""A stream of image files, one line each, resumable at any moment; features that are kept."""

from __future__ import annotations

from pathlib import Path
from unittest import mock

import pytest

import crg
from colour_encoder import COLOURS, ColourEncoder, save_image, save_stream
from crg.classifier import Classifier
from crg.encoders.mini import Mini
from crg.predict.answers import AnswerFile, read_answers
from crg.predict.sorting import Sorter
from crg.predict.stream import ImageStream
from processes import called

KEPT = ("--features", "kept")


@pytest.fixture
def paths(here: Path) -> list[Path]:
    """Twelve images in the folder that is worked in."""
    return save_stream(here / "in")


def test_the_state_is_saved_now_and_then(tmp_path: Path, paths: list[Path]) -> None:
    """While the stream runs, the state on disk is at most so many images old."""
    classifier = Classifier(ColourEncoder(), list(COLOURS))
    with AnswerFile(tmp_path / "answers.jsonl") as answers:
        stream = ImageStream(classifier, answers, tmp_path, save_every=4)
        for number, _ in enumerate(stream.run(paths), start=1):
            assert (tmp_path / "state").exists() == (number >= 4)


def predict(*words: str, code: int = 0) -> str:
    """The command in this process; what it says."""
    return called("predict", "in", "--classes", "red,green,blue", *words, code=code).output


def test_features_are_kept_for_other_questions(
    paths: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another method, list of classes or threshold reads what was encoded; the rest is refused."""
    Path("in/bad.png").write_bytes(b"no image")
    predict(*KEPT, "--out", "1.jsonl")
    assert len(crg.read_features("kept")) == len(paths)
    monkeypatch.setattr(Mini, "encode_images", lambda *_: pytest.fail("encoded again"))
    predict(*KEPT, "--out", "2.jsonl")
    assert Path("1.jsonl").read_bytes() == Path("2.jsonl").read_bytes()
    assert "bad.png" in Path("2.jsonl").read_text()
    predict(*KEPT, "--out", "3.jsonl", "--method", "tda", "--classes", "red,blue")
    assert len(read_answers(Path("3.jsonl"))) == len(paths) + 1
    assert "views is 1 in the store" in predict(*KEPT, "--views", "2", code=2)
    words = ("--views", "2", "--out", "4.jsonl", "--resume")  # which knows no settings yet
    assert "kept has other features" in predict(*KEPT, *words, code=2)
    assert "leave it out, or --watch" in predict(*KEPT, "--watch", code=2)
    save_image(Path("in/more.png"), "red")
    assert "another folder with --features" in predict(*KEPT, code=2)


def test_keeping_features_can_be_stopped(paths: list[Path]) -> None:
    """A stop leaves no answers behind, and a resumed call needs no image that was moved."""
    sort = ("--sort-into", "sorted", "--by", "move", "--passes", "1")
    words = (*KEPT, "--out", "1.jsonl", *sort)
    with mock.patch.object(Mini, "encode_images", side_effect=KeyboardInterrupt):
        predict(*words, code=130)
    assert not Path("1.jsonl").exists()
    with mock.patch.object(Sorter, "put", side_effect=[*[None] * 4, KeyboardInterrupt]):
        predict(*words, code=130)
    Path("in/000.png").unlink()
    predict(*words, "--resume")
    assert len(read_answers(Path("1.jsonl"))) == len(paths)
