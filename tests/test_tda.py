"""TDA against a plain form with lists and dictionaries, as its authors describe it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import crg
from streams import clustered


def plain_tda(text: Any, stream: Any, scale: float) -> list[Any]:
    """Logits of TDA for single views, with one list of (entropy, key, mask) per class."""
    n_classes = len(text)
    positive: dict[int, list[Any]] = {k: [] for k in range(n_classes)}
    negative: dict[int, list[Any]] = {k: [] for k in range(n_classes)}
    answers = []
    for f in stream:
        logits = scale * text @ f
        p = np.exp(logits - logits.max())
        p /= p.sum()
        h = float(-(p * np.log(p)).sum())
        keep(positive[int(p.argmax())], (h, f, None), 3)
        if 0.2 < h / math.log2(n_classes) < 0.5:
            keep(negative[int(p.argmax())], (h, f, p > 0.03), 2)
        for k, queue in positive.items():
            logits[k] += 2.0 * sum(math.exp(-5.0 * (1 - f @ key)) for _, key, _ in queue)
        for queue in negative.values():
            for _, key, mask in queue:
                logits -= 0.117 * math.exp(-1.0 * (1 - f @ key)) * mask
        answers.append(logits)
    return answers


def keep(queue: list[Any], item: Any, size: int) -> None:
    """Hold the items of lowest entropy."""
    queue.append(item)
    queue.sort(key=lambda entry: entry[0])
    del queue[size:]


def test_tda_equals_its_plain_form() -> None:
    """Positive and negative cache give the logits of the paper's equations at every step."""
    text, stream = clustered(seed=11, n=400, n_classes=8, width=16)
    scale = 8.0  # soft enough that many images are of middling entropy
    adapter = crg.create("tda", crg.Task([str(k) for k in range(8)], text, scale))
    for views, expected in zip(stream, plain_tda(text, stream[:, 0, :], scale), strict=True):
        np.testing.assert_allclose(adapter.step(views).logits, expected, rtol=1e-10)
    method: Any = adapter._method
    assert method.negative.n_images > 0  # the negative cache took part


def test_tda_worked_by_hand() -> None:
    """Two classes, one image: s f.t plus alpha exp(-beta (1 - 1)) for the class it joined."""
    adapter = crg.create("tda", crg.Task(["a", "b"], np.eye(2), logit_scale=10.0))
    logits = adapter.step(np.array([1.0, 0.0])).logits
    np.testing.assert_allclose(logits, [10.0 + 2.0, 0.0], atol=1e-12)
