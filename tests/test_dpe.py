"""DPE against torch autograd and torch's own AdamW."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import crg
from streams import clustered

torch = pytest.importorskip("torch")


class PlainDPE:
    """DPE for single views, as its authors describe it."""

    def __init__(self, text: Any, scale: float) -> None:
        self.text, self.scale, self.n_updates = torch.tensor(text), scale, 0
        self.queues: dict[int, list[Any]] = {}

    def step(self, feature: Any) -> Any:
        """Logits for one image."""
        f = torch.tensor(feature)
        self.offer(f)
        classes = sorted(self.queues)
        visual = torch.stack(
            [torch.stack([key for _, key in self.queues[k]]).mean(0) for k in classes]
        )
        r_text = torch.zeros_like(self.text, requires_grad=True)
        r_visual = torch.zeros_like(visual, requires_grad=True)
        optimiser = torch.optim.AdamW([r_text, r_visual], lr=6e-4, eps=1e-3, weight_decay=0.1)
        t, v = unit(self.text + r_text), unit(visual + r_visual)
        loss = entropy(self.logits(f, t, v, classes))
        target = torch.arange(len(classes))
        loss = loss + 0.5 * torch.nn.functional.cross_entropy(v @ t[classes].T / 0.01, target)
        loss.backward()
        optimiser.step()
        with torch.no_grad():
            t, v = unit(self.text + r_text), unit(visual + r_visual)
            logits = self.logits(f, t, v, classes)
            if float(entropy(logits)) / math.log2(len(self.text)) < 0.1:
                self.n_updates += 1
                self.text = (self.n_updates * self.text + t) / (self.n_updates + 1)
        return logits.numpy()

    def offer(self, f: Any) -> None:
        """Three most confident images per class."""
        logits = self.scale * unit(self.text) @ f
        queue = self.queues.setdefault(int(logits.argmax()), [])
        queue.append((float(entropy(logits)), f))
        queue.sort(key=lambda item: item[0])
        del queue[3:]

    def logits(self, f: Any, t: Any, v: Any, classes: list[int]) -> Any:
        """s f.t' + alpha exp(-beta (1 - f.v'))."""
        affinity = 6.0 * torch.exp(-5.0 * (1 - v @ f))
        return (self.scale * t @ f).index_add(0, torch.tensor(classes), affinity)


def unit(rows: Any) -> Any:
    """Rows of unit length."""
    return torch.nn.functional.normalize(rows, dim=-1)


def entropy(logits: Any) -> Any:
    """Entropy in nats."""
    return -(torch.softmax(logits, 0) * torch.log_softmax(logits, 0)).sum()


def test_dpe_equals_autograd() -> None:
    """From the first image, with most classes unseen, to full queues and evolved text."""
    text, stream = clustered(seed=12, n=300, n_classes=9, width=16)
    adapter = crg.create("dpe", crg.Task([str(k) for k in range(9)], text, 20.0))
    plain = PlainDPE(text, 20.0)
    for views in stream:
        expected = plain.step(views[0])
        np.testing.assert_allclose(adapter.step(views).logits, expected, rtol=1e-9, atol=1e-9)
    method: Any = adapter._method
    assert method.text.n_updates == plain.n_updates > 50
