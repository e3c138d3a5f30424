"""Giving a task what a method needs and what can be had: the text encoder of a model."""

from __future__ import annotations

import functools
from collections.abc import Iterable

from crg.encoders import load_encoder
from crg.needs import TEXT_ENCODER, PromptableTextEncoder
from crg.types import InputError, Task


def equipped(task: Task, needs: Iterable[str], model: str | None) -> Task:
    """The task with the text encoder of ``model``, if a method needs one and it is not there."""
    if TEXT_ENCODER not in needs or model is None or TEXT_ENCODER in task.resources:
        return task
    return task.with_resources({TEXT_ENCODER: load_text_encoder(model)})


@functools.lru_cache(maxsize=1)
def load_text_encoder(model: str) -> PromptableTextEncoder:
    """The text encoder of a model, for prompts that are tuned; it is kept for the next run."""
    encoder = load_encoder(model)
    if not hasattr(encoder, "promptable"):
        raise InputError(
            f"The text encoder of {model} takes no embeddings: "
            "encode with mini or a model of open_clip."
        )
    text_encoder: PromptableTextEncoder = encoder.promptable()
    return text_encoder
