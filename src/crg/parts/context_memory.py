"""What was learnt lately, so that the same training is not done again for each stream order.

Training depends on nothing but what goes into it, so equal input may get the earlier answer.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import astuple

import numpy as np

from crg.parts import context_training
from crg.parts.context_training import Learnt, Plan
from crg.parts.prompting import Tensor, gradients_enabled

_PLACES = 8
_learnt: OrderedDict[str, Learnt] = OrderedDict()


def learn_once(
    encode: Callable[[Tensor], Tensor],
    start: Tensor,
    images: Tensor,
    labels: Sequence[int],
    scale: float,
    plan: Plan,
) -> Learnt:
    """What ``learn_context`` gives, remembered for a few different trainings."""
    import torch

    with gradients_enabled(), torch.no_grad():
        begin = encode(start)  # stands for the encoder and its classes
    key = _digest([begin, start, images], f"{list(labels)} {scale!r} {astuple(plan)}")
    if key not in _learnt:
        _learnt[key] = context_training.learn_context(encode, start, images, labels, scale, plan)
        if len(_learnt) > _PLACES:
            _learnt.popitem(last=False)
    return _learnt[key]


def forget() -> None:
    """Let the next training be done anew."""
    _learnt.clear()


def _digest(tensors: Sequence[Tensor], facts: str) -> str:
    digest = hashlib.sha256(facts.encode())
    for tensor in tensors:
        array = np.ascontiguousarray(tensor.detach().cpu().numpy())
        digest.update(f"{array.shape} {array.dtype}".encode())
        digest.update(array.data)
    return digest.hexdigest()
