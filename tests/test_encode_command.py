"""``crg encode``, and the other commands on what it leaves behind."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from crg import datasets
from crg.datasets.catalog import get_entry
from crg.encoders.base import Encoder
from crg.features import files
from crg.images.image_set import ImageSet
from encoding_fakes import HashEncoder, StoppedAfter, contents, dot_files, dots
from encoding_fakes import small_blocks as small_blocks
from made_datasets import make_split_dataset, split_of
from processes import called

command = importlib.import_module("crg.cli.encode")  # the name means the command in crg.cli
pytestmark = pytest.mark.usefixtures("small_blocks", "fakes")


@pytest.fixture
def fakes(monkeypatch: pytest.MonkeyPatch, here: Path) -> None:
    """``dots`` and ``files`` instead of datasets, ``hash`` and ``stopped`` instead of models."""
    encoders: dict[str, Encoder] = {"hash": HashEncoder(), "stopped": StoppedAfter(9)}

    def load_encoder(name: str, **options: Any) -> Encoder:
        return encoders[name]

    def load_dataset(name: str, *, limit: int | None, **which: Any) -> ImageSet:
        if name == "files":
            return dot_files(here / "files", 20, [13])
        made = dots(limit or 20)
        return made if name == "dots" else datasets.load_dataset(name, limit=limit, **which)

    monkeypatch.setattr(files, "load_encoder", load_encoder)
    monkeypatch.setattr(command, "load_dataset", load_dataset)


def encode(*words: str, model: str = "hash", code: int = 0) -> Result:
    """Run ``crg encode`` with three views."""
    return called("encode", "--model", model, "--views", "3", *words, code=code)


def test_a_dataset_is_encoded_and_checked() -> None:
    """The command says what it made and left out; the second time it checks the store."""
    done = encode("dots", "--out", "s", "--batch", "3")
    assert done.stdout == "s is finished: 20 images, 3 views each, 8 wide.\n"
    assert done.stderr == "20 of 20 images\n"  # a pipe gets a count and no bar
    again = json.loads(encode("dots", "--out", "s", "--json").stdout)
    assert (again["n_images"], again["n_reused"], again["skipped"]) == (20, 20, [])
    Path("s/text_features.npy").write_text("[]")
    said = encode("dots", "--out", "s", code=2).stderr
    assert "the checksum of text_features.npy does not match" in said
    done = encode("files", "--out", "t")  # of which one cannot be read
    assert "19 images" in done.stdout
    assert "Left out 1 image" in done.stdout and "dot 13.png: " in done.stdout


def test_ctrl_c_says_how_to_continue(monkeypatch: pytest.MonkeyPatch) -> None:
    """It exits with 130; the same command, with a bar on a terminal, ends in the same bytes."""
    stopped = encode("dots", "--out", "s", model="stopped", code=130)
    assert "kept in s, and the same command continues" in stopped.stderr
    monkeypatch.setenv("FORCE_COLOR", "1")  # rich takes it for a terminal
    assert "12/12" in encode("dots", "--out", "s").stderr
    encode("dots", "--out", "whole")
    assert contents(Path("s")) == contents(Path("whole"))


def test_every_setting_reaches_the_store() -> None:
    """Views, augmentation, seed and prompts of the command line are in the key of the store."""
    words = ["--augment", "augmix", "--seed", "7", "--template", "the {}.", "--limit", "9"]
    sentences = {name: [f"It is {name}."] for name in ("red", "green", "blue")}
    Path("d.json").write_text(json.dumps(sentences))
    encode("dots", "--out", "s", *words, "--descriptions", "d.json")
    key = json.loads(Path("s/store.json").read_text())["key"]
    assert (key["views"], key["augment"], key["seed"]) == (3, "augmix", 7)
    assert (key["template list"], key["prompts"]) == (["the {}."], "both")
    assert key["descriptions"] and key["number of images"] == 9


def test_a_store_knows_the_split_and_the_draw(tmp_path: Path) -> None:
    """A store of training images is not continued as the test set, or with other shots.

    A limit beside shots, a split that there is not, and an address without Ray are refused.
    """
    make_split_dataset(tmp_path, get_entry("dtd"), split_of(train=5, test=4))
    words = ["dtd", "--root", str(tmp_path), "--out", "s"]
    done = encode(*words, "--split", "train", "--shots", "2")
    assert "s is finished: 4 images" in done.output, done.output
    assert json.loads(Path("s/store.json").read_text())["key"]["dataset"] == "dtd:train"
    for more, sentence in (
        ([], "made of something else"),
        (["--split", "train"], "made of something else"),
        (["--split", "train", "--shots", "3"], "made of something else"),
        (["--shots", "1", "--limit", "1"], "give one of the two"),
        (["--split", "val"], "has no split 'val': choose train or test."),
        (["--split", "rest"], "'rest' is not one of"),
        (["--address", "10.0.0.1:6379"], "add --engine ray"),
    ):
        assert sentence in encode(*words, *more, code=2).stderr
    encode(*words[:-1], "plain")
    assert json.loads(Path("plain/store.json").read_text())["key"]["dataset"] == "dtd"
