"""DOTA, OGA, OnZeta, FreeTTA and two baselines, each against a plain form."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import crg
from crg.parts.precision import on_grid
from streams import clustered

K, D, SCALE = 6, 16, 20.0
Numbers = Any


def softmax(logits: Numbers) -> Numbers:
    """Probabilities."""
    odds = np.exp(logits - logits.max())
    return odds / odds.sum()


def discriminant(x: Numbers, means: Numbers, precision: Numbers) -> Numbers:
    """h_k = x . P mu_k - 1/2 mu_k . P mu_k."""
    return means @ precision @ x - 0.5 * np.einsum("kd,de,ke->k", means, precision, means)


def plain_dota(text: Numbers, stream: Numbers, each: bool = False) -> Iterator[Numbers]:
    """DOTA with the mean covariance, or, with ``each``, with one covariance per class."""
    n_classes, width = text.shape
    means, counts = np.full((n_classes, width), 0.001), np.ones(n_classes)
    covariances = np.stack([0.002 * np.eye(width)] * n_classes)
    for i, x in enumerate(stream):
        mixed = 0.9999 * covariances.mean(0) + 1e-4 * np.eye(width)
        precision = np.linalg.inv(mixed) if i else np.eye(width) / 0.002
        zero_shot = SCALE * text @ x
        yield zero_shot + min(0.2, 0.005 * counts.mean()) * discriminant(x, means, precision)
        y = softmax(zero_shot)
        d, gain = x - means, y / (counts + y)
        own = covariances if each else covariances.mean(0)
        changes = gain[:, None, None] * (d[:, :, None] * d[:, None, :] - own)
        covariances = covariances + (changes if each else changes.mean(0))
        means = means + gain[:, None] * d
        counts = counts + y


def plain_oga(text: Numbers, stream: Numbers) -> Iterator[Numbers]:
    """OGA with lists of entries and np.cov."""
    width, queues = text.shape[1], [[] for _ in text]  # type: int, list[list[Any]]
    for x in stream:
        zero_shot = SCALE * text @ x
        p = softmax(zero_shot)
        queue = queues[int(p.argmax())]
        queue.append((float(-(p * np.log(p)).sum()), x))
        queue.sort(key=lambda entry: entry[0])
        del queue[8:]
        means = text.copy()
        for k, entries in enumerate(queues):
            if len(entries) >= 2:
                means[k] = sum(row for _, row in entries) / 8
        residuals = np.array([row - means[k] for k, es in enumerate(queues) for _, row in es])
        n, precision = len(residuals), width * np.eye(width)  # type: int, Any
        if max(map(len, queues)) > 2:
            m = np.cov(residuals.T)
            ridged = (n - 1) * m + on_grid(float(np.trace(m))) * np.eye(width)
            precision = np.linalg.pinv(m) if n > 4 * width else width * np.linalg.inv(ridged)
        yield zero_shot + 0.05 * discriminant(x, means, precision)


def plain_onzeta(text: Numbers, stream: Numbers, length: int) -> Iterator[Numbers]:
    """OnZeta's answers as logarithms of probabilities."""
    n_classes = len(text)
    rho, w, sharp = np.zeros(n_classes), text.copy(), SCALE / 4
    for i, x in enumerate(stream, 1):
        p = softmax(SCALE * text @ x) * np.exp(rho)
        p /= p.sum()
        q = softmax(sharp * w @ x)
        b = 0.8 * math.sqrt(min(1, i / length))
        rho = np.maximum(0, rho - 20 / math.sqrt(i) * (p - 1 / n_classes))
        w = w - 0.5 / math.sqrt(i) * sharp * np.outer(q - p, x)
        w /= np.linalg.norm(w, axis=1, keepdims=True)
        yield np.log(b * q + (1 - b) * p)


def plain_bias(text: Numbers, stream: Numbers, prior: float, sign: float) -> Iterator[Numbers]:
    """Zero-shot with the logarithm of the mean probabilities before, added or taken away."""
    before = [np.full(len(text), prior)]
    for x in stream:
        zero_shot = SCALE * text @ x
        total = np.sum(before, axis=0)
        yield zero_shot + sign * np.log(total / total.sum())
        before.append(softmax(zero_shot))


def plain_freetta(text: Numbers, stream: Numbers, form: str) -> Iterator[Numbers]:
    """FreeTTA, with one outer product per class and the precision of every image."""
    n_classes, width = text.shape
    means, counts, n = text.copy(), np.full(n_classes, 1 / n_classes), 1.0
    covariance = eye = np.eye(width)
    for x in stream:
        zero_shot = SCALE * text @ x
        ridged = (n - 1) * covariance + np.trace(covariance) * eye
        g = discriminant(x, means, width * np.linalg.inv(ridged)) + np.log(counts / n)
        g = SCALE * means @ x if form == "simple" else g
        yield zero_shot + 0.13 * g
        p = softmax(zero_shot)
        w = math.exp(2.45 * (p * np.log(p)).sum() / math.log(n_classes))
        gamma = {"paper": softmax(g), "joint": softmax(zero_shot + 0.13 * g), "simple": p}[form]
        for k in range(n_classes):
            means[k] = (counts[k] * means[k] + w * gamma[k] * x) / (counts[k] + w * gamma[k])
        if form == "simple":
            means /= np.linalg.norm(means, axis=1, keepdims=True)
        scatter = w * sum(gamma[k] * np.outer(x - means[k], x - means[k]) for k in range(n_classes))
        before, n, counts = n, n + w, counts + w * gamma
        if form == "paper":
            covariance = ((n - 1) * covariance + scatter) / (n - 1)
        else:
            covariance = (before * covariance + scatter) / n


PLAIN: dict[str, Callable[[Numbers, Numbers], Iterator[Numbers]]] = {
    "dota": plain_dota,
    "oga": plain_oga,
    "onzeta": lambda text, stream: plain_onzeta(text, stream, 150),
    "freetta": lambda text, stream: plain_freetta(text, stream, "paper"),
    "freetta joint": lambda text, stream: plain_freetta(text, stream, "joint"),
    "freetta simple": lambda text, stream: plain_freetta(text, stream, "simple"),
    "logit_bias": lambda text, stream: plain_bias(text, stream, 1 / len(text), -1),
    "class_prior": lambda text, stream: plain_bias(text, stream, 1, 1),
}


OPTIONS: dict[str, dict[str, Any]] = {
    "onzeta": {"length": 150},
    "dota": {"refresh": 0.0},
    "freetta": {"refresh": 0.0},
    "freetta joint": {"refresh": 0.0, "form": "joint"},
    "freetta simple": {"form": "simple"},
}


@pytest.mark.parametrize("name", PLAIN)
def test_each_equals_its_plain_form(name: str) -> None:
    """From the first image to long after the queues are full (300 images, width 16)."""
    text, stream = clustered(seed=21, n=300, n_classes=12, width=D)
    task = crg.Task([str(k) for k in range(12)], text, SCALE)
    adapter = crg.create(name.split()[0], task, **OPTIONS.get(name, {}))
    for views, expected in zip(stream, PLAIN[name](text, stream[:, 0, :]), strict=True):
        np.testing.assert_allclose(adapter.step(views).logits, expected, rtol=1e-5, atol=1e-5)


def test_the_mean_covariance_of_dota_stands_in_for_one_per_class() -> None:
    """Keeping the mean of the covariances only, DOTA answers as with all in 98% of the images."""
    text, stream = clustered(seed=22, n=400, n_classes=K, width=D)
    adapter = crg.create("dota", crg.Task([str(k) for k in range(K)], text, SCALE))
    ours = [adapter.step(views).label for views in stream]
    theirs = [int(row.argmax()) for row in plain_dota(text, stream[:, 0, :], each=True)]
    assert np.mean(np.equal(ours, theirs)) >= 0.98
    zero_shot = (stream[:, 0, :] @ text.T).argmax(axis=1)
    assert np.mean(zero_shot == ours) < 1  # the Gaussian took part


def test_freetta_may_invert_its_covariance_seldom() -> None:
    """With P recomputed per 2% of growth, FreeTTA's answers are those of P at every image."""
    text, stream = clustered(seed=23, n=400, n_classes=K, width=D)
    task = crg.Task([str(k) for k in range(K)], text, SCALE)
    often = crg.create("freetta", task, form="joint", refresh=0.0)
    seldom = crg.create("freetta", task, form="joint")
    for views in stream:
        np.testing.assert_allclose(
            seldom.step(views).probs, often.step(views).probs, rtol=0, atol=0.02
        )
