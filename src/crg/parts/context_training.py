"""Learning context vectors from labelled features: SGD with a warm-up epoch and cosine decay.

Only the text encoder runs: the images enter as features that were stored before. One text
pass serves all images of a batch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from crg.parts.prompting import Tensor, gradients_enabled

WARM_UP_LR = 1e-5  # during the first epoch


@dataclass(frozen=True)
class Plan:
    """How to train."""

    epochs: int
    lr: float = 0.002
    batch: int = 32
    momentum: float = 0.9
    weight_decay: float = 5e-4
    seed: int = 0  # of the order of images


@dataclass(frozen=True, eq=False)
class Learnt:
    """What came of training."""

    context: Tensor  # of the shape it began with
    losses: tuple[float, ...]  # the mean of each epoch


def epochs_for(shots: int) -> int:
    """As in the authors' code: 50 epochs for 1 shot, 100 for 2 and 4, 200 for 8 and 16.

    >>> [epochs_for(shots) for shots in (1, 2, 4, 8, 16)]
    [50, 100, 100, 200, 200]
    """
    return 50 if shots == 1 else 100 if shots <= 4 else 200


def learning_rates(epochs: int, lr: float) -> list[float]:
    """One per epoch: 1e-5 in the first, then lr (1 + cos(pi (e - 1) / epochs)) / 2.

    The cosine starts after the warm-up and would need one epoch more to end at zero.
    """
    decay = [lr * (1 + math.cos(math.pi * e / epochs)) / 2 for e in range(epochs - 1)]
    return [WARM_UP_LR, *decay]


def batches(n_images: int, plan: Plan) -> Iterator[list[np.ndarray[Any, Any]]]:
    """For each epoch the rows of each batch, in a new order; a last batch that is not full is
    left out, unless it is the only one.
    """
    rng = np.random.default_rng([plan.seed, n_images])
    for _ in range(plan.epochs):
        order = rng.permutation(n_images)
        n_full = max(1, n_images // plan.batch)
        yield [order[b * plan.batch : (b + 1) * plan.batch] for b in range(n_full)]


def cross_entropy(text: Tensor, images: Tensor, labels: Tensor, scale: float) -> Tensor:
    """Mean over images of -ln softmax(s f . t)_y."""
    from torch.nn.functional import cross_entropy as mean_loss

    return mean_loss(scale * images.to(text) @ text.T, labels)


def learn_context(
    encode: Callable[[Tensor], Tensor],
    start: Tensor,
    images: Tensor,
    labels: Sequence[int],
    scale: float,
    plan: Plan,
) -> Learnt:
    """Train from ``start``; ``encode(context)`` gives one unit feature per class, (C, D).

    ``images`` is (F, D) and ``labels`` F numbers in 0..C-1. Should a gradient overflow,
    training ends with the last context that is finite.
    """
    import torch

    answers = torch.tensor(labels, device=images.device)
    losses: list[float] = []
    with gradients_enabled():
        context = start.detach().clone().requires_grad_(True)
        optimizer = torch.optim.SGD(
            [context], plan.lr, momentum=plan.momentum, weight_decay=plan.weight_decay
        )
        rates = learning_rates(plan.epochs, plan.lr)
        for lr, epoch in zip(rates, batches(len(labels), plan), strict=True):
            optimizer.param_groups[0]["lr"] = lr
            total = 0.0
            for rows in epoch:
                loss = cross_entropy(encode(context), images[rows], answers[rows], scale)
                (context.grad,) = torch.autograd.grad(loss, [context])
                if not bool(torch.isfinite(context.grad).all()):
                    return Learnt(context.detach(), tuple(losses))
                optimizer.step()
                total += float(loss.detach())
            losses.append(total / len(epoch))
    return Learnt(context.detach(), tuple(losses))
