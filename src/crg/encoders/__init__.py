"""CLIP-like models behind one small protocol."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from difflib import get_close_matches
from importlib.util import find_spec

from crg.encoders.base import Encoder
from crg.encoders.listing import EncoderRow, list_encoders
from crg.needs import TEXT_ENCODER, PromptableTextEncoder
from crg.types import InputError, Task

__all__ = [
    "Encoder",
    "EncoderRow",
    "equipped",
    "list_encoders",
    "load_encoder",
    "load_text_encoder",
]


def load_encoder(name: str, *, device: str | None = None, precision: str | None = None) -> Encoder:
    """The encoder of that name, ready to use.

    ``mini`` is bundled; ``onnx:FOLDER`` is what ``crg export`` wrote; anything else is a
    model of open_clip: ``ViT-B-16``, ``ViT-B-16:TAG`` or ``ViT-B-16:FILE``.
    """
    name = name.strip()
    if name == "mini":
        return _mini(device, precision)
    if name.startswith("onnx:"):
        from crg.encoders.onnx import Onnx

        return Onnx(name.removeprefix("onnx:"), device=device, precision=precision)
    _check_spelling(name)
    from crg.encoders.openclip import OpenClip

    return OpenClip(name, device=device, precision=precision)


def _check_spelling(name: str) -> None:
    """Where open_clip is not there to know its models, a slip in ours is reported."""
    if find_spec("open_clip") is None and get_close_matches(name.lower(), ["mini"], cutoff=0.7):
        raise InputError(f"There is no model {name!r}: did you mean mini?")


def _mini(device: str | None, precision: str | None) -> Encoder:
    if device not in (None, "cpu") or precision not in (None, "fp32"):
        raise InputError(
            "mini runs on the processor in fp32 only: leave device and precision out "
            "or choose another model."
        )
    from crg.encoders.mini import Mini

    return Mini()


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
