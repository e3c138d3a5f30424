"""The context that CoOp learns: where it starts, how it is trained, and a memo of trainings.

Only the text encoder runs: images enter as stored features, and one text pass serves a batch.
Training is deterministic, so equal input gets the earlier outcome from the memo.
"""

from __future__ import annotations

import hashlib
import math
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import astuple, dataclass
from typing import Any, TypeAlias

import numpy as np

from crg.parts.prompting import Tensor, embedded, gradients_enabled
from crg.resources import PromptableTextEncoder

Numbers: TypeAlias = np.ndarray[Any, Any]

SPREAD = 0.02  # standard deviation of a random start
WARM_UP_LR = 1e-5  # during the first epoch
MOMENTUM, WEIGHT_DECAY = 0.9, 5e-4
_SLOTS = 8  # trainings that the memo holds
_learnt: OrderedDict[str, Tensor] = OrderedDict()


def starting_context(encoder: PromptableTextEncoder, words: str, length: int, seed: int) -> Numbers:
    """Vectors (M, E) from words or, without any, from N(0, 0.02)."""
    vectors: Numbers = embedded(encoder, words or "a").cpu().numpy()
    if words:
        return vectors
    drawn = np.random.default_rng([seed]).normal(0.0, SPREAD, (length, vectors.shape[-1]))
    return drawn.astype(vectors.dtype)


@dataclass(frozen=True)
class TrainingPlan:
    """Hyperparameters of SGD."""

    epochs: int
    lr: float = 0.002
    batch: int = 32
    seed: int = 0  # of the order of images


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


def batches(n_images: int, plan: TrainingPlan) -> Iterator[list[Numbers]]:
    """For each epoch the rows of each batch, in a new order.

    An incomplete last batch is dropped, unless it is the only one.
    """
    rng = np.random.default_rng([plan.seed, n_images])
    for _ in range(plan.epochs):
        order = rng.permutation(n_images)
        n_full = max(1, n_images // plan.batch)
        yield [order[b * plan.batch : (b + 1) * plan.batch] for b in range(n_full)]


def learn_context(
    encode: Callable[[Tensor], Tensor],
    start: Tensor,
    images: Tensor,
    labels: Sequence[int],
    scale: float,
    plan: TrainingPlan,
) -> Tensor:
    """Train from ``start``; ``encode(context)`` gives one unit feature per class, (C, D).

    ``images`` is (F, D) and ``labels`` F numbers in 0..C-1. If a gradient overflows, training ends
    with the last finite context. Equal input gets the earlier outcome from the memo.
    """
    import torch

    with gradients_enabled(), torch.no_grad():
        begin = encode(start)  # identifies the encoder and its classes
    key = _training_key([begin, start, images], f"{list(labels)} {scale!r} {astuple(plan)}")
    if key not in _learnt:
        answers = torch.tensor(labels, device=images.device)

        def loss(context: Tensor, rows: Numbers) -> Tensor:
            text = encode(context)
            logits = scale * images[rows].to(text) @ text.T
            return torch.nn.functional.cross_entropy(logits, answers[rows])

        _learnt[key] = descend(loss, start, len(labels), plan)
        if len(_learnt) > _SLOTS:
            _learnt.popitem(last=False)
    return _learnt[key]


def descend(
    loss: Callable[[Tensor, Numbers], Tensor], start: Tensor, n_images: int, plan: TrainingPlan
) -> Tensor:
    """Minimise ``loss(context, rows)`` by SGD, batch after batch; stop if a gradient overflows."""
    import torch

    with gradients_enabled():
        context = start.detach().clone().requires_grad_(True)
        optimizer = torch.optim.SGD([context], plan.lr, MOMENTUM, weight_decay=WEIGHT_DECAY)
        rates = learning_rates(plan.epochs, plan.lr)
        for lr, epoch in zip(rates, batches(n_images, plan), strict=True):
            optimizer.param_groups[0]["lr"] = lr
            for rows in epoch:
                (context.grad,) = torch.autograd.grad(loss(context, rows), [context])
                if not bool(torch.isfinite(context.grad).all()):
                    return context.detach()
                optimizer.step()
    return context.detach()


def _training_key(tensors: Sequence[Tensor], facts: str) -> str:
    digest = hashlib.sha256(facts.encode())
    for tensor in tensors:
        array = np.ascontiguousarray(tensor.detach().cpu().numpy())
        digest.update(f"{array.shape} {array.dtype}".encode())
        digest.update(array.data)
    return digest.hexdigest()
