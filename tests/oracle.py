"""The plain form of CRG: recompute everything, torch autograd, an inverse from scratch.

It is written to be obviously right and shares nothing with the package but the names and defaults
of options. The tests that import it prove that the two agree to rounding; the benchmarks measure
against it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from crg import get_method

torch.set_num_threads(1)  # its tensors are small, and two threads only fight over them


@dataclass
class Entry:
    """One place of a queue."""

    entropy: float
    arrival: int
    feature: Tensor


@dataclass
class Oracle:
    """CRG, one plain step at a time."""

    text: Tensor  # (K, D), unit rows
    scale: float = 100.0
    options: Any = field(default_factory=get_method("crg").Config)
    invert: Any = torch.linalg.inv

    def __post_init__(self) -> None:
        self.t = self.text.clone()
        self.reference = self.t
        self.n_updates = 0
        self.n_offers = 0
        self.queues = [[Entry(math.inf, 0, row)] for row in self.text]

    def step(self, views: Tensor) -> Tensor:
        """Logits for one image, views (V, D) of unit length."""
        o = self.options
        kept, x, label, entropy = self.select(views)
        self.offer(label, x, entropy)
        v = torch.stack([torch.stack([e.feature for e in q]).mean(0) for q in self.queues])
        others = (v.sum(0) - v) / (len(v) - 1)
        r_t, r_p, r_n = self.residuals(kept, v, others)
        f = views[0] if o.predict_on == "original" else x
        moved = unit(self.t + r_t)
        logits = self.scale * moved @ f
        if o.gaussian:
            logits = logits + o.lambda1 * self.discriminant(f, r_p)
        elif o.positive:
            logits = logits + self.attraction(unit(v + r_p) @ f)
        if o.negative:
            logits = logits + self.repulsion(unit(others + r_n) @ f)
        self.evolve(logits, moved)
        return logits

    def select(self, views: Tensor) -> tuple[Tensor, Tensor, int, float]:
        """Step 1."""
        probs = torch.softmax(self.scale * views @ self.t.T, dim=1)
        n_kept = max(1, math.floor(self.options.view_share * len(views) + 1e-9))
        keep = torch.argsort(entropy_of(probs), stable=True)[:n_kept]
        kept, p = views[keep], probs[keep].mean(0)
        x = kept[0] if n_kept == 1 else unit(kept.mean(0))
        return kept, x, int(p.argmax()), float(entropy_of(p))

    def offer(self, label: int, x: Tensor, entropy: float) -> None:
        """Step 2: the M lowest entropies, ties by arrival."""
        self.n_offers += 1
        queue = [*self.queues[label], Entry(entropy, self.n_offers, x)]
        queue.sort(key=lambda entry: (entry.entropy, entry.arrival))
        self.queues[label] = queue[: self.options.queue_size]

    def residuals(self, kept: Tensor, v: Tensor, others: Tensor) -> tuple[Tensor, ...]:
        """Step 4, by autograd and torch's own AdamW."""
        o = self.options
        moves = [torch.zeros_like(self.t, requires_grad=True) for _ in range(3)]
        if not o.residual:
            return tuple(move.detach() for move in moves)
        loss = self.loss(kept, v, others, *moves)
        optimiser = torch.optim.AdamW(moves, lr=o.lr, eps=o.eps)
        gradients = torch.autograd.grad(loss, moves, allow_unused=True, materialize_grads=True)
        for move, gradient in zip(moves, gradients, strict=True):
            move.grad = gradient
        moves[0].grad = gradients[0] + self.inter_gradient()
        optimiser.step()
        r_t, r_p, r_n = (move.detach() for move in moves)
        return (r_t if o.text_cache else torch.zeros_like(r_t)), r_p, r_n

    def loss(
        self, kept: Tensor, v: Tensor, others: Tensor, r_t: Tensor, r_p: Tensor, r_n: Tensor
    ) -> Tensor:
        """L without the text separation, which is taken at the reference."""
        o = self.options
        t, pos, neg = unit(self.t + r_t), unit(v + r_p), unit(others + r_n)
        z = self.scale * kept @ t.T
        if o.positive:
            z = z + self.attraction(kept @ pos.T)
        if o.negative:
            z = z + self.repulsion(kept @ neg.T)
        # In logarithms, so that a probability of zero has a gradient too.
        log_mean = torch.logsumexp(torch.log_softmax(z, dim=1), dim=0) - math.log(len(z))
        loss = -(log_mean.exp() * log_mean).sum()
        if o.cache_separation:
            terms = (pos * neg).sum(1)
            loss = loss + o.xi2 * (terms.sum() if o.reduction == "sum" else terms.mean())
        return loss

    def inter_gradient(self) -> Tensor:
        """Gradient of xi1 L_inter at the reference copy of the text prototypes."""
        o = self.options
        move = torch.zeros_like(self.t, requires_grad=True)
        if not o.text_separation:
            return move.detach()
        t = unit(self.reference + move)
        distances = 2 - 2 * t @ t.T  # |a - b|^2 of unit vectors
        pairs = torch.exp(-o.gamma * distances)
        off_diagonal = pairs[~torch.eye(len(t), dtype=torch.bool)]
        total = off_diagonal.sum() if o.reduction == "sum" else off_diagonal.mean()
        return torch.autograd.grad(o.xi1 * total, move)[0]

    def discriminant(self, f: Tensor, r_p: Tensor) -> Tensor:
        """Step 5: scatter, precision and linear classifier, all from scratch in float64."""
        classes = [torch.stack([e.feature for e in q]).double() for q in self.queues]
        centred = torch.cat([rows - rows.mean(0) for rows in classes])
        scatter = centred.T @ centred
        trace, width = float(scatter.trace()), len(f)
        if trace <= 1e-12:
            return torch.zeros(len(classes), dtype=f.dtype)
        grid = math.log(1.02)
        ridge = math.exp(grid * round(math.log(trace / (len(centred) - 1)) / grid))
        precision = width * self.invert(scatter + ridge * torch.eye(width, dtype=torch.float64))
        mu = torch.stack([rows.mean(0) for rows in classes]) + r_p.double()
        w = mu @ precision
        h: Tensor = w @ f.double() - 0.5 * (w * mu).sum(1)
        return h.to(f.dtype)

    def evolve(self, logits: Tensor, moved: Tensor) -> None:
        """Step 7."""
        o = self.options
        share = float(entropy_of(torch.softmax(logits, dim=0))) / math.log(len(logits))
        if o.text_cache and o.evolve and share < o.tau_t:
            self.n_updates += 1
            self.t = (self.n_updates * self.t + moved) / (self.n_updates + 1)
            if float((self.t - self.reference).norm(dim=1).max()) > 1e-3:
                self.reference = self.t

    def attraction(self, cosine: Tensor) -> Any:
        """A(c)."""
        return self.options.lambda1 * torch.exp(-self.options.beta * (1 - cosine))

    def repulsion(self, cosine: Tensor) -> Any:
        """B(c)."""
        return self.options.lambda2 * torch.exp(self.options.beta * (1 - cosine))


def unit(rows: Tensor) -> Tensor:
    """Rows of unit length."""
    return torch.nn.functional.normalize(rows, dim=-1)


def entropy_of(probs: Tensor) -> Tensor:
    """Entropy in nats along the last axis."""
    terms: Tensor = torch.special.xlogy(probs, probs)
    return -terms.sum(-1)
