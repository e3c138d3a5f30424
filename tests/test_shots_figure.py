"""The figure of few-shot against zero-shot caches shows what the methods answer."""

from __future__ import annotations

import dataclasses
import json
from functools import partial
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

import crg
import shots_figure
from crg.streams.orders import shuffled
from streams import clustered

K = 4


def made(few: bool = True) -> crg.Features:
    """Sixty images with two views each, and three labelled ones per class."""
    text, stream = clustered(seed=8, n=72, n_classes=K, width=6, n_views=2)
    labels = np.argmax(stream[:, 0] @ text.T + 0.1 * stream[:, 0, :K], axis=1)
    task = crg.Task([f"c{k}" for k in range(K)], text, 10.0)
    rows, known = (stream[60:, 0], np.arange(12) % K) if few else (None, None)
    return crg.Features(stream[:60], task, labels=labels[:60], few_features=rows, few_labels=known)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A feature file with labelled images."""
    crg.write_features(tmp_path / "features.npz", made())
    return tmp_path / "features.npz"


def _run(file: Path, *more: str) -> int:
    return int(shots_figure.main([str(file), "--out", str(file.parent / "figure"), *more]))


def test_figure_and_figures_are_written(file: Path) -> None:
    """Both files, with both caches and zero-shot at every size, and the note in each."""
    assert _run(file, "--shots", "2,1,4", "--orders", "2", "--note", "made up") == 0
    figure = json.loads((file.parent / "figure.json").read_text())
    assert figure["note"] == "made up"
    assert [point["shots"] for point in figure["zero-shot cache"]] == [1, 2, 4]
    assert [point["shots"] for point in figure["few-shot cache"]] == [1, 2]  # there are three
    assert len(figure["zero-shot"]["per_order"]) == 2
    svg = ElementTree.fromstring((file.parent / "figure.svg").read_text())
    words = [text.text or "" for text in svg.iter("{http://www.w3.org/2000/svg}text")]
    assert {"zero-shot", "few-shot cache", "zero-shot cache"} <= set(words)
    assert any("made up" in word for word in words)


def test_few_shot_cache_is_measured_on_original_views() -> None:
    """Accuracy by hand: each order's own draw, original views, one-hot labels."""
    features = made()
    assert features.few_features is not None and features.few_labels is not None
    [point] = shots_figure.measured(features, [2], 3, alpha=40.0, beta=4.0)["few-shot cache"]
    f = features.image_features[:, 0]
    for order, accuracy in enumerate(point["per_order"]):
        rows = shuffled(12, order)
        logits = 10.0 * f @ features.task.text_features.T
        for k in range(K):
            first = rows[features.few_labels[rows] == k][:2]
            cosines = f @ features.few_features[first].T
            logits[:, k] += 40.0 * np.exp(-4.0 * (1 - cosines)).sum(axis=1)
        assert accuracy == np.mean(logits.argmax(axis=1) == features.labels)
    assert len(set(point["per_order"])) > 1  # the draws differ


def test_zero_shot_cache_has_the_affinity_of_the_few_shot_cache() -> None:
    """Filled with the stream itself, both caches give the last image the same logits."""
    features = made()
    text, f = features.task.text_features, features.image_features[:, 0]
    guessed = np.argmax(f @ text.T, axis=1)
    own = {"positive_weight": 2.0, "positive_sharpness": 4.0, "negative_weight": 0.0}
    stream = crg.create("tda", features.task, positive_size=60, **own)
    last = stream.step_many(f)[-1].logits
    filled = crg.Features(f, features.task, few_features=f, few_labels=guessed)
    few = crg.create("tip_adapter", filled.task, shots=0, alpha=2.0, beta=4.0)
    np.testing.assert_allclose(few.step(f[-1]).logits, last, rtol=1e-12)
    assert shots_figure.measured(features, [3], 1, 1.0, 5.5)["zero-shot cache"][0]["purity"] > 0.5


def test_zero_shot_cache_is_measured_on_original_views() -> None:
    """A file with further views gives the figures of one without."""
    features = made()
    alone = dataclasses.replace(features, image_features=features.image_features[:, 0])
    measure = partial(shots_figure.measured, shots=[1, 3], orders=3, alpha=3.0, beta=5.5)
    assert measure(features) == measure(alone)


def test_what_gives_no_figure_is_refused(
    tmp_path: Path, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """No labelled images, no places, no file: one sentence and nothing written."""
    crg.write_features(tmp_path / "bare.npz", made(few=False))
    assert _run(tmp_path / "bare.npz") == 2
    assert "--few" in capsys.readouterr().err
    assert _run(file, "--shots", "0") == 2
    assert "above zero" in capsys.readouterr().err
    assert _run(tmp_path / "none.npz") == 2
    assert not (tmp_path / "figure.json").exists()


def test_labelled_images_may_come_from_another_file(file: Path, tmp_path: Path) -> None:
    """--few takes the images of a labelled file, original views only."""
    crg.write_features(tmp_path / "bare.npz", made(few=False))
    assert _run(tmp_path / "bare.npz", "--few", str(file), "--shots", "1", "--orders", "1") == 0
    figure = json.loads((tmp_path / "figure.json").read_text())
    assert figure["zero-shot"]["std"] is None
    assert len(figure["few-shot cache"]) == 1
