"""``crg encode``, and the other commands on what it leaves behind."""

from __future__ import annotations

import importlib
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

from crg import datasets
from crg.cli import main
from crg.datasets.catalog import get_entry
from crg.encoders.base import Encoder
from crg.features import files
from crg.images.image_set import ImageSet
from encoding_fakes import HashEncoder, StoppedAfter, contents, dot_files, dots, small_blocks
from made_datasets import make_split_dataset, split_of

__all__ = ["small_blocks"]  # a fixture
command = importlib.import_module("crg.cli.encode")  # the name means the command in crg.cli
pytestmark = pytest.mark.usefixtures("small_blocks", "fakes")


@pytest.fixture
def fakes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """``dots`` and ``files`` instead of datasets, ``hash`` and ``stopped`` instead of models."""
    encoders: dict[str, Encoder] = {"hash": HashEncoder(), "stopped": StoppedAfter(9)}

    def load_encoder(name: str, **options: Any) -> Encoder:
        return encoders[name]

    def load_dataset(name: str, *, limit: int | None, **which: Any) -> ImageSet:
        if name == "files":
            return dot_files(tmp_path / "files", 20, [13])
        made = dots(limit or 20)
        return made if name == "dots" else datasets.load_dataset(name, limit=limit, **which)

    monkeypatch.setattr(files, "load_encoder", load_encoder)
    monkeypatch.setattr(command, "load_dataset", load_dataset)
    monkeypatch.setenv("CRG_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)


def crg(*words: str) -> Result:
    """Run a command."""
    return CliRunner().invoke(main, list(words))


def encode(*words: str, model: str = "hash") -> Result:
    """Run ``crg encode`` with three views."""
    return crg("encode", "--model", model, "--views", "3", *words)


def test_a_dataset_is_encoded_and_checked() -> None:
    """The command says what it made, in words or JSON, and --check whether it is sound."""
    done = encode("dots", "--out", "s", "--batch", "3")
    assert done.stdout == "s is finished: 20 images, 3 views each, 8 wide.\n"
    assert done.stderr == "20 of 20 images\n"  # a pipe gets a count and no bar
    again = json.loads(encode("dots", "--out", "s", "--json").stdout)
    assert (again["n_images"], again["n_reused"], again["skipped"]) == (20, 20, [])
    assert "s is sound: 20 images" in encode("--out", "s", "--check").output
    Path("s/text_features.npy").write_text("[]")
    done = encode("--out", "s", "--check")
    assert done.exit_code == 2
    assert "the checksum of text_features.npy does not match" in done.stderr


def test_the_smallest_crop_may_be_chosen() -> None:
    """--smallest-crop changes the views, and a fraction that is none is refused in a sentence."""
    encode("dots", "--out", "s")
    encode("dots", "--out", "larger", "--smallest-crop", "0.5")
    small, large = (np.load(f"{store}/image_features.npy") for store in ("s", "larger"))
    assert not np.array_equal(small, large)
    for wrong in ("0", "1.5"):
        refused = encode("dots", "--out", "w", "--smallest-crop", wrong)
        assert refused.exit_code == 2 and "smallest crop is" in refused.stderr


def test_unreadable_images_are_printed() -> None:
    """Without --skip-unreadable the command refuses, with it the images are listed."""
    refused = encode("files", "--out", "s")
    assert refused.exit_code == 2 and "--skip-unreadable" in refused.stderr
    done = encode("files", "--out", "s", "--skip-unreadable")
    assert done.exit_code == 0
    assert "1 image could not be read" in done.stdout and "dot 13.png: " in done.stdout


def test_ctrl_c_says_how_to_continue(monkeypatch: pytest.MonkeyPatch) -> None:
    """It exits with 130; the same command, with a bar on a terminal, ends in the same bytes."""
    stopped = encode("dots", "--out", "s", model="stopped")
    assert stopped.exit_code == 130
    assert "kept in s, and the same command continues" in stopped.stderr
    monkeypatch.setenv("FORCE_COLOR", "1")  # rich takes it for a terminal
    assert "12/12" in encode("dots", "--out", "s").stderr
    encode("dots", "--out", "whole")
    assert contents(Path("s")) == contents(Path("whole"))


def test_a_dataset_or_a_check_is_needed() -> None:
    """Without a dataset the command says what to give."""
    done = encode("--out", "s")
    assert done.exit_code == 2 and "--check" in done.stderr
    far = encode("dots", "--out", "s", "--address", "10.0.0.1:6379")
    assert far.exit_code == 2 and "add --engine ray" in far.stderr


def test_every_setting_reaches_the_store() -> None:
    """Views, augmentation, seed and prompts of the command line are in the key of the store."""
    words = ["--augment", "augmix", "--seed", "7", "--template", "the {}.", "--limit", "9"]
    sentences = {name: [f"It is {name}."] for name in ("red", "green", "blue")}
    Path("d.json").write_text(json.dumps(sentences))
    done = encode("dots", "--out", "s", *words, "--prompts", "both", "--descriptions", "d.json")
    assert done.exit_code == 0, done.output
    key = json.loads(Path("s/store.json").read_text())["key"]
    assert (key["views"], key["augment"], key["seed"]) == (3, "augmix", 7)
    assert (key["template list"], key["prompts"]) == (["the {}."], "both")
    assert key["descriptions"] and key["number of images"] == 9


def test_compare_reads_stores_in_processes_and_resumes() -> None:
    """``crg compare`` runs on stores in several processes, and resumes only on equal stores."""
    sha256 = json.loads(encode("dots", "--out", "s", "--json").stdout)["sha256"]
    words = ["compare", "s", "--methods", "tda", "--orders", "2", "--workers", "2"]
    n_runs = _runs_after(words)
    assert n_runs > 2 and _runs_after(words) == n_runs  # all of them are reused
    assert json.loads(crg(*words, "--json").stdout)["data"]["s"]["sha256"] == sha256
    shutil.rmtree("s")
    encode("dots", "--out", "s", "--seed", "1")
    assert _runs_after(words) == 2 * n_runs  # those are other features


def _runs_after(words: list[str]) -> int:
    assert crg(*words).exit_code == 0
    lines = Path("crg-results.jsonl").read_text().splitlines()
    return sum('"metrics"' in line for line in lines)


def test_a_store_knows_the_split_and_the_draw(tmp_path: Path) -> None:
    """A store of training images is not continued as the test set, or with other shots."""
    make_split_dataset(tmp_path, get_entry("dtd"), split_of(train=5, test=4))
    words = ["dtd", "--root", str(tmp_path), "--out", "s"]
    done = encode(*words, "--split", "train", "--shots", "2")
    assert "s is finished: 4 images" in done.output, done.output
    assert json.loads(Path("s/store.json").read_text())["key"]["dataset"] == "dtd:train"
    for others in ([], ["--split", "train"], ["--split", "train", "--shots", "3"]):
        refused = encode(*words, *others)
        assert refused.exit_code == 2 and "made of something else" in refused.stderr
    assert encode(*words[:-1], "plain").exit_code == 0
    assert json.loads(Path("plain/store.json").read_text())["key"]["dataset"] == "dtd"


def test_shots_and_splits_are_refused_where_there_are_none(tmp_path: Path) -> None:
    """A limit beside shots, and a split of what has none, end with one sentence."""
    make_split_dataset(tmp_path, get_entry("dtd"), split_of(test=2))
    words = ["dtd", "--root", str(tmp_path), "--out", "s"]
    for more, sentence in (
        (["--shots", "1", "--limit", "1"], "give one of the two"),
        (["--split", "train"], "has no split 'train': choose test."),
        (["--split", "rest"], "'rest' is not one of"),
    ):
        refused = encode(*words, *more)
        assert refused.exit_code == 2 and sentence in refused.stderr, refused.stderr
