"""Prompting: text features of classes under context vectors, and gradients back to them.

The text encoder runs over ``chunk`` classes at a time (0 for all at once). What it keeps for
the gradient is then that of one chunk, however many classes there are: it is computed anew
when the gradient is asked for. M context vectors of width E, K classes, D feature width.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Sequence
from typing import Any

from crg.needs import PromptableTextEncoder
from crg.types import Array

Tensor = Any  # a torch tensor; torch is optional and imported where it is used


def endings_of(class_names: Sequence[str]) -> tuple[str, ...]:
    """What follows the context: the name, underscores as spaces, and a full stop.

    >>> endings_of(["red_star", "cat"])
    ('red star.', 'cat.')
    """
    return tuple(f"{name.replace('_', ' ')}." for name in class_names)


def as_tensor(array: Array, reference: Tensor) -> Tensor:
    """An array of any library as a tensor of the reference's precision, where that one is."""
    import numpy as np
    import torch

    host = np.array(array) if isinstance(array, np.ndarray) else array  # torch wants it writeable
    return torch.as_tensor(host).to(reference)


def prompt_features(
    encoder: PromptableTextEncoder, context: Tensor, endings: Sequence[str], chunk: int = 0
) -> Tensor:
    """Unit features (K, D) of context (M, E) or (K, M, E) with each ending.

    Differentiable with respect to the context, with recomputation where there are chunks.
    """
    import torch
    from torch.utils.checkpoint import checkpoint

    pieces = list(_chunks(context, endings, chunk))
    if len(pieces) == 1:
        return encoder.encode(context, endings)
    if not (torch.is_grad_enabled() and context.requires_grad):
        return torch.cat([encoder.encode(*piece) for piece in pieces])
    # There is nothing random in a frozen encoder, so no generator need be put back.
    again = functools.partial(checkpoint, use_reentrant=False, preserve_rng_state=False)
    return torch.cat([again(encoder.encode, *piece) for piece in pieces])


def pull_back(
    encoder: PromptableTextEncoder,
    context: Tensor,
    endings: Sequence[str],
    gradients: Tensor,
    chunk: int = 0,
) -> Tensor:
    """For each of N gradients (N, K, D) of text features, the gradient of the context.

    One pass forwards through the encoder serves all N, one backwards each; returns N times
    the shape of the context, which is shared by all classes, (M, E).
    """
    import torch

    with gradients_enabled():
        total, start = context.new_zeros((len(gradients), *context.shape)), 0
        for _, names in _chunks(context, endings, chunk):
            leaf = context.detach().clone().requires_grad_()
            features = encoder.encode(leaf, names)
            part = gradients[:, start : start + len(names)].to(features)
            start += len(names)
            for n, gradient in enumerate(part):
                more = n + 1 < len(part)
                (found,) = torch.autograd.grad(features, leaf, gradient, retain_graph=more)
                total[n] += found
    return total


@contextlib.contextmanager
def gradients_enabled() -> Iterator[None]:
    """Gradients are recorded, whatever the program around has switched off."""
    import torch

    with torch.inference_mode(False), torch.enable_grad():
        yield


def _chunks(
    context: Tensor, endings: Sequence[str], chunk: int
) -> Iterator[tuple[Tensor, Sequence[str]]]:
    """Pieces of the endings, each with the context that belongs to it."""
    size = chunk or len(endings)
    for start in range(0, len(endings), size):
        rows = slice(start, start + size)
        yield context if context.ndim == 2 else context[rows], endings[rows]
