"""Answers in a notebook."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import crg
from colour_encoder import ColourEncoder, save_stream
from crg.answer import Answer, answer_for
from crg.classifier import Classifier

NASTY = ("red", "<script>alert(1)</script> blue", '"green" onload="x')


@pytest.fixture
def classifier() -> Classifier:
    """A classifier of colours with names that would do harm in a page."""
    return Classifier(ColourEncoder(), NASTY)


def test_an_answer_shows_image_and_bars(classifier: Classifier, tmp_path: Path) -> None:
    """An image and both probabilities of each class."""
    [path, *others] = save_stream(tmp_path, 4)
    for answer in (classifier.predict(path), *classifier.predict_many(others)):
        assert isinstance(answer, Answer) and answer.pixels is not None
        html = answer._repr_html_()
        assert html.count("data:image/jpeg;base64,") == 1
        assert html.count("zero-shot ") == 3
        assert f"{answer.probability:.1%}" in html and f"{answer.zero_shot_probability:.1%}" in html


def test_an_answer_is_small(classifier: Classifier) -> None:
    """Its repr is one short line; it keeps at most 64 pixels a side, and not the views."""
    answer = classifier.predict(Image.new("RGB", (900, 700), "red"))
    assert re.fullmatch(r"Answer\('red', \d\.\d+, zero-shot 'red' \d\.\d+, step 1\)", repr(answer))
    assert repr(classifier) == "Classifier('colours', method='anchored', 3 classes, 1 images seen)"
    assert answer.pixels is not None and answer.pixels.base is None
    assert max(answer.pixels.shape) <= 64


def test_names_are_escaped(classifier: Classifier) -> None:
    """Whatever a class or an image is called, it is text in the page."""
    answer = classifier.predict(Image.new("RGB", (9, 9), "blue"), sample_id="<img src=x>")
    html = answer._repr_html_()
    assert "<script" not in html and '"green" on' not in html and "<img src=x" not in html
    assert "&lt;script&gt;" in html


def test_the_likeliest_classes_are_shown() -> None:
    """Five classes and zero-shot's choice; a threshold withholds the label, not the class."""
    names, probs = [f"c{k}" for k in range(9)], np.linspace(0.2, 0.0, 9)
    prediction = crg.Prediction(probs, probs, 0, "c0", crg.Diagnostics(0.0, 0), names)
    html = Answer(prediction, np.eye(9, dtype="f4")[8], np.eye(1, dtype="f4"), 1)._repr_html_()
    assert re.findall(r'title="(c\d)"', html) == [*names[:5], "c8"]
    probs = np.array([0.25, 0.75])
    prediction = crg.Prediction(probs, probs, 1, "dog", crg.Diagnostics(0.0, 1))
    assert repr(prediction) == "Prediction('dog', 0.750, 2 classes)"
    answer = answer_for(crg.Task(["cat", "dog"], np.eye(2)), prediction, np.array([[0.9, 0.1]]), 1)
    assert answer.top(1) == [("dog", 0.75)] and answer.label == "dog" and answer.changed
    unsure = replace(answer, unsure_below=0.8)
    assert unsure.as_dict(top=1) == {
        "label": "", "probability": 0.75, "zero_shot_label": "cat",
        "zero_shot_probability": 1.0, "changed": True, "step": 1, "unsure": True,
        "top": [{"label": "dog", "probability": 0.75}],
    }  # fmt: skip
    assert "(unsure)" in unsure._repr_html_()
