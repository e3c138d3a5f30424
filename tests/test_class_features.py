"""Files of class features in place of a text encoder, for images, streams and stores."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from crg import Classifier
from crg.encoders.mini import Mini
from crg.features.files import load_with_classes, read_features
from crg.prompts import encode_classes
from processes import called
from sentences import check_refused
from served import Process, refused, send

NAMES = ("red circle", "blue square", "green star")


class _ImagesOnly(Mini):
    """The bundled model as one whose text encoder is gone."""

    def encode_texts(self, texts: Any) -> Any:
        pytest.fail("a text was encoded")


def _write(file: Path, **changes: Any) -> Path:
    features = 3 * encode_classes(Mini(), NAMES, cache=None)
    values = {"class_names": np.array(NAMES), "text_features": features} | changes
    np.savez(file, **{key: value for key, value in values.items() if value is not None})
    return file


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Three classes as mini knows them, not of unit length."""
    return _write(tmp_path / "classes.npz")


@pytest.fixture
def images(tmp_path: Path) -> Path:
    """A folder of two images."""
    (tmp_path / "images").mkdir()
    for colour in ("red", "blue"):
        Image.new("RGB", (48, 48), colour).save(tmp_path / "images" / f"{colour}.png")
    return tmp_path / "images"


def test_the_answers_are_those_of_the_text_encoder(
    file: Path, images: Path, tmp_path: Path
) -> None:
    """A classifier answers the same; names choose among the file's, others are another encoder."""
    whole = Classifier("mini", NAMES)
    parts = Classifier(_ImagesOnly(), text_features=file)
    assert parts.task.class_names == NAMES
    assert np.allclose(parts.task.text_features, whole.task.text_features, atol=1e-6)
    for path in sorted(images.iterdir()):
        ours, theirs = parts.predict(path), whole.predict(path)
        assert ours.label == theirs.label
        assert ours.probability == pytest.approx(theirs.probability, abs=1e-5)
    chosen = Classifier(_ImagesOnly(), NAMES[::-2], text_features=file, templates=["a {}"])
    assert np.allclose(chosen.task.text_features, parts.task.text_features[[2, 0], :])
    other = _write(tmp_path / "other.npz", class_names=np.array(NAMES[::-1]))
    prints = {load_with_classes("mini", each).fingerprint for each in (file, other, None)}
    assert len(prints) == 3


def test_names_match_whatever_their_spelling(file: Path, tmp_path: Path) -> None:
    """Case, underscores and spaces do not matter, unless two classes differ in them alone."""
    encoder = load_with_classes("mini", file)
    rows = encode_classes(encoder, NAMES[:2])
    assert np.array_equal(encode_classes(encoder, ["Red_Circle", "BlueSquare "]), rows)
    other = _write(tmp_path / "o.npz", class_names=np.array(["red circle", "Red_circle", "a"]))
    encoder = load_with_classes("mini", other)
    assert np.array_equal(encode_classes(encoder, ["Red_circle"]), rows[1:])
    words = ("red circle, Red_circle", "one of them")
    check_refused(words, encode_classes, encoder, ["RED CIRCLE"])


def test_the_service_takes_the_classes_of_the_file(file: Path, images: Path) -> None:
    """``crg serve --text-features`` needs no text encoder, also for states saved with the file."""
    saved = Classifier(_ImagesOnly(), text_features=file)
    saved.predict(images / "red.png")
    saved.save(images.parent / "state.crg")
    state = (images.parent / "state.crg").read_bytes()
    image = (images / "blue.png").read_bytes()
    served = Process(images.parent / "data", "--text-features", str(file))
    with served, served.client() as browser:
        given = {"json": {"classes": ["Blue_Square", "red circle"]}}
        octets = {"content": state, "headers": {"Content-Type": "application/octet-stream"}}
        for body in (given, octets):
            session = browser.post("/v1/sessions", **body)
            assert session.status_code == 201, session.text
            answer = send(browser, session.headers["location"], image)
            assert answer["label"] in ("Blue_Square", *NAMES)
        refused(browser.post("/v1/sessions", json={"classes": ["cat", "dog"]}), 422, "no class")
        assert answer["step"] == 2


def test_commands_take_the_classes_of_the_file(file: Path, images: Path, tmp_path: Path) -> None:
    """``crg predict`` needs no class names; ``crg encode`` stores features of the dataset's."""
    for name in NAMES:
        (tmp_path / "data" / name).mkdir(parents=True)
        Image.new("RGB", (48, 48), name.split()[0]).save(tmp_path / "data" / name / "1.png")
    out, store = tmp_path / "answers.jsonl", tmp_path / "store"
    for words in (["predict", images, "--model", "mini", "--out", out],
                  ["encode", tmp_path / "data", "--views", "1", "--out", store]):  # fmt: skip
        called(*map(str, words), "--text-features", str(file))
    answers = [json.loads(line) for line in out.read_text().splitlines()]
    assert len(answers) == 2 and {answer["label"] for answer in answers} <= set(NAMES)
    task = read_features(store).task
    rows = [NAMES.index(name) for name in task.class_names]
    expected = encode_classes(Mini(), NAMES, cache=None)[rows]
    assert np.allclose(task.text_features, expected, atol=1e-6)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"class_names": None}, ["no 'class_names'"]),
        ({"text_features": None}, ["no 'text_features'"]),
        ({"text_features": np.ones((3, 5), np.float32)}, ["5 wide", "same model"]),
        ({"text_features": np.zeros((3, 64), np.float32)}, ["classes.npz"]),
        ({"text_features": np.ones((3, 64), np.int64)}, ["int64"]),
    ],
)
def test_other_files_are_refused(tmp_path: Path, changes: Any, words: list[str]) -> None:
    """Missing arrays, and those of another width, kind or length, are reported with the file."""
    file = _write(tmp_path / "classes.npz", **changes)
    check_refused(tuple(words), Classifier, "mini", text_features=file)


def test_unknown_classes_and_texts_are_refused(file: Path) -> None:
    """A class that the file does not have, and any other text, cannot be encoded."""
    words = ("no class 'dog'", "'red circle'")
    check_refused(words, Classifier, "mini", ["red circle", "dog"], text_features=file)
    encode = load_with_classes("mini", file).encode_texts
    check_refused(("classes.npz", "no text encoder"), encode, ["a dog"])
    check_refused("does not exist", Classifier, "mini", text_features="nowhere.npz")
