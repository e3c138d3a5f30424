"""Where a context begins: at the embeddings of words, at random, or at a learnt one."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np

from crg.parts.context_file import Context, Numbers
from crg.resources import PromptableTextEncoder
from crg.types import Array, InputError, Task

SPREAD = 0.02  # standard deviation of a random start


def starting_context(
    encoder: PromptableTextEncoder, class_names: Sequence[str], words: str, length: int, seed: int
) -> Numbers:
    """Vectors (M, E), or (K, M, E) if there are class names, from words or from N(0, 0.02).

    Random vectors of a class depend on its name, not on its place among the others.
    """
    if words:
        one = _from_words(encoder, words)
        return np.stack([one] * len(class_names)) if class_names else one
    width, dtype = context_width(encoder), _as_numbers(encoder, "a").dtype
    seeds = [[seed, _number(name)] for name in class_names] or [[seed]]
    drawn = [np.random.default_rng(s).normal(0.0, SPREAD, (length, width)) for s in seeds]
    return np.stack(drawn).astype(dtype) if class_names else drawn[0].astype(dtype)


def context_width(encoder: PromptableTextEncoder) -> int:
    """E."""
    return int(encoder.context_of("a").shape[-1])


def check_fit(context: Context, encoder: PromptableTextEncoder, path: str) -> None:
    """Refuse a context that was learnt with another text encoder."""
    width, needed = context.vectors.shape[-1], context_width(encoder)
    if context.model != encoder.name or width != needed:
        raise InputError(
            f"{path} was learnt with {context.model} (width {width}) but the text encoder is "
            f"{encoder.name} (width {needed}): give a context of the same model."
        )


def check_width(text: Array, task: Task, model: str) -> None:
    """Refuse text features (n, D) that are not as wide as those of the task."""
    if text.shape[1] != task.width:
        raise InputError(
            f"The text encoder {model} gives features of width {text.shape[1]}, but the task's "
            f"are {task.width} wide: give that of the model that encoded the images."
        )


def _from_words(encoder: PromptableTextEncoder, words: str) -> Numbers:
    vectors = _as_numbers(encoder, words)
    if len(vectors) == 0:
        raise InputError(
            f"The context {words!r} has no words to start from: give some, such as 'a photo of a'."
        )
    return vectors


def _as_numbers(encoder: PromptableTextEncoder, words: str) -> Numbers:
    vectors: Numbers = encoder.context_of(words).detach().cpu().numpy()
    return vectors


def _number(name: str) -> int:
    return int.from_bytes(
        hashlib.sha256(name.encode("utf-8", "surrogatepass")).digest()[:8], "little"
    )
