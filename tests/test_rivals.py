"""TDA, DPE, DOTA, OGA, OnZeta, FreeTTA and two baselines, each against a plain form."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain
from typing import Any

import numpy as np
import pytest
from scipy.special import softmax

import crg
from crg.parts.precision import on_grid
from synthetic import clustered

torch = pytest.importorskip("torch")
SCALE = 20.0
Numbers = Any


def entropy_of(probs: Numbers) -> Any:
    """H(p) in nats."""
    return -(probs * (torch if isinstance(probs, torch.Tensor) else np).log(probs)).sum()


def keep(queue: list[Any], item: tuple[Any, ...], size: int) -> None:
    """Hold the items of lowest entropy."""
    queue.append(item)
    queue.sort(key=lambda entry: entry[0])
    del queue[size:]


def discriminant(x: Numbers, means: Numbers, precision: Numbers) -> Numbers:
    """h_k = x . P mu_k - 1/2 mu_k . P mu_k."""
    return means @ precision @ x - 0.5 * np.einsum("kd,de,ke->k", means, precision, means)


def plain_dota(text: Numbers, stream: Numbers) -> Iterator[Numbers]:
    """DOTA with the mean of the covariances of all classes."""
    n_classes, width = text.shape
    means, counts = np.full((n_classes, width), 0.001), np.ones(n_classes)
    covariance = 0.002 * np.eye(width)
    for i, x in enumerate(stream):
        mixed = 0.9999 * covariance + 1e-4 * np.eye(width)
        precision = np.linalg.inv(mixed) if i else np.eye(width) / 0.002
        zero_shot = SCALE * text @ x
        yield zero_shot + min(0.2, 0.005 * counts.mean()) * discriminant(x, means, precision)
        y = softmax(zero_shot)
        d, gain = x - means, y / (counts + y)
        changes = gain[:, None, None] * (d[:, :, None] * d[:, None, :] - covariance)
        covariance = covariance + changes.mean(0)
        means = means + gain[:, None] * d
        counts = counts + y


def plain_oga(text: Numbers, stream: Numbers) -> Iterator[Numbers]:
    """OGA with lists of entries and np.cov."""
    width, queues = text.shape[1], [[] for _ in text]  # type: int, list[list[Any]]
    for x in stream:
        zero_shot = SCALE * text @ x
        p = softmax(zero_shot)
        keep(queues[int(p.argmax())], (entropy_of(p), x), 8)
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


def plain_tda(text: Numbers, stream: Numbers) -> Iterator[Numbers]:
    """TDA with one list of (entropy, key, mask) per class."""
    positive, negative = ([[] for _ in text] for _ in range(2))  # type: list[list[Any]], Any
    for f in stream:
        logits = 8.0 * text @ f  # soft enough that many images are of middling entropy
        p = softmax(logits)
        h = entropy_of(p)
        keep(positive[int(p.argmax())], (h, f), 3)
        if 0.2 < h / math.log2(len(text)) < 0.5:
            keep(negative[int(p.argmax())], (h, f, p > 0.03), 2)
        for k, queue in enumerate(positive):
            logits[k] += 2.0 * sum(math.exp(-5.0 * (1 - f @ key)) for _, key in queue)
        for _, key, mask in chain(*negative):
            logits -= 0.117 * math.exp(-1.0 * (1 - f @ key)) * mask
        yield logits
    assert any(negative)  # the negative cache took part


def plain_dpe(text: Numbers, stream: Numbers) -> Iterator[Numbers]:
    """DPE by autograd and torch's own AdamW; text evolves."""
    unit, n_updates = partial(torch.nn.functional.normalize, dim=-1), 0
    prototypes, queues = torch.tensor(text), {}  # type: Any, dict[int, list[Any]]

    def logits_of(f: Any, t: Any, v: Any) -> Any:
        affinity = 6.0 * torch.exp(-5.0 * (1 - v @ f))
        return (SCALE * t @ f).index_add(0, torch.tensor(sorted(queues)), affinity)

    for f in torch.tensor(stream):
        p = (SCALE * unit(prototypes) @ f).softmax(0)
        keep(queues.setdefault(int(p.argmax()), []), (float(entropy_of(p)), f), 3)
        classes = sorted(queues)
        visual = torch.stack([torch.stack([x for _, x in queues[k]]).mean(0) for k in classes])
        r_text, r_visual = (torch.zeros_like(r, requires_grad=True) for r in (prototypes, visual))
        optimiser = torch.optim.AdamW([r_text, r_visual], lr=6e-4, eps=1e-3, weight_decay=0.1)
        t, v = unit(prototypes + r_text), unit(visual + r_visual)
        target = torch.arange(len(classes))
        pairs = torch.nn.functional.cross_entropy(v @ t[classes].T / 0.01, target)
        (entropy_of(logits_of(f, t, v).softmax(0)) + 0.5 * pairs).backward()
        optimiser.step()
        with torch.no_grad():
            t, v = unit(prototypes + r_text), unit(visual + r_visual)
            logits = logits_of(f, t, v)
            if float(entropy_of(logits.softmax(0))) / math.log2(len(text)) < 0.1:
                n_updates += 1
                prototypes = (n_updates * prototypes + t) / (n_updates + 1)
        yield logits.numpy()
    assert n_updates > 50


PLAIN: dict[str, Callable[[Numbers, Numbers], Iterator[Numbers]]] = {
    "tda": plain_tda,
    "dpe": plain_dpe,
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
    text, stream = clustered(seed=21, n=300, n_classes=12, width=16)
    task = crg.Task([str(k) for k in range(12)], text, 8.0 if name == "tda" else SCALE)
    adapter = crg.create(name.split()[0], task, **OPTIONS.get(name, {}))
    for views, expected in zip(stream, PLAIN[name](text, stream[:, 0, :]), strict=True):
        allowed = 1e-5 if name[:4] in ("dota", "free") else 1e-9  # they skip negligible changes
        np.testing.assert_allclose(adapter.step(views).logits, expected, allowed, allowed)
