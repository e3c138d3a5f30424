"""``crg predict --features``: images are encoded once, whatever is asked of them."""

from __future__ import annotations

from pathlib import Path
from unittest import mock

import pytest
from click.testing import CliRunner

import crg
from colour_encoder import save_image, save_stream
from crg.cli import main
from crg.encoders.mini import Mini
from crg.predict.answers import read_answers
from crg.predict.sorting import Sorter

N_IMAGES = 12
KEPT = ("--features", "kept")


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CRG_CACHE", str(tmp_path / "cache"))
    save_stream(Path("in"), N_IMAGES)


def called(*words: str, status: int = 0) -> str:
    """The command in this process; what it says."""
    done = CliRunner().invoke(main, ["predict", "in", "--classes", "red,green,blue", *words])
    assert done.exit_code == status, done.output
    return done.output


def test_features_are_kept_for_other_questions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another method, list of classes or threshold reads what was encoded; the rest is refused."""
    Path("in/bad.png").write_bytes(b"no image")
    called(*KEPT, "--out", "1.jsonl")
    assert len(crg.read_features("kept")) == N_IMAGES
    monkeypatch.setattr(Mini, "encode_images", lambda *_: pytest.fail("encoded again"))
    called(*KEPT, "--out", "2.jsonl")
    assert Path("1.jsonl").read_bytes() == Path("2.jsonl").read_bytes()
    assert "bad.png" in Path("2.jsonl").read_text()
    called(*KEPT, "--out", "3.jsonl", "--method", "tda", "--classes", "red,blue")
    assert len(read_answers(Path("3.jsonl"))) == N_IMAGES + 1
    assert "views is 1 in the store" in called(*KEPT, "--views", "2", status=2)
    assert "leave it out, or --watch" in called(*KEPT, "--watch", status=2)
    save_image(Path("in/more.png"), "red")
    assert "another folder with --features" in called(*KEPT, status=2)


def test_keeping_features_can_be_stopped() -> None:
    """A stop leaves no answers behind, and a resumed call needs no image that was moved."""
    sort = ("--sort-into", "sorted", "--by", "move", "--passes", "1")
    words = ("--features", "kept", "--out", "1.jsonl", *sort)
    with mock.patch.object(Mini, "encode_images", side_effect=KeyboardInterrupt):
        called(*words, status=130)
    assert not Path("1.jsonl").exists()
    with mock.patch.object(Sorter, "put", side_effect=[*[None] * 4, KeyboardInterrupt]):
        called(*words, status=130)
    Path("in/000.png").unlink()
    called(*words, "--resume")
    assert len(read_answers(Path("1.jsonl"))) == N_IMAGES
