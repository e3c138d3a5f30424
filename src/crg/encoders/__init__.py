"""CLIP-like models behind one small protocol: loading one by name, and what there is to load."""

from __future__ import annotations

import fnmatch
import functools
from collections.abc import Iterable
from dataclasses import dataclass

from crg.encoders.base import Encoder, library
from crg.resources import TEXT_ENCODER, PromptableTextEncoder
from crg.suggest import near
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

    ``mini`` is bundled; ``onnx:FOLDER`` is what ``crg export`` wrote; ``hf:USER/MODEL`` and
    ``hf:FOLDER`` are models of transformers; anything else is a model of open_clip:
    ``ViT-B-16``, ``ViT-B-16:TAG`` or ``ViT-B-16:FILE``.
    """
    name = name.strip()
    if name == "mini":
        return _mini(device, precision)
    if name.startswith("onnx:"):
        from crg.encoders.onnx import Onnx

        return Onnx(name.removeprefix("onnx:"), device=device, precision=precision)
    if name.startswith("hf:"):
        from crg.encoders.huggingface import HuggingFace

        return HuggingFace(name.removeprefix("hf:"), device=device, precision=precision)
    _check_spelling(name)
    from crg.encoders.openclip import OpenClip

    return OpenClip(name, device=device, precision=precision)


def _check_spelling(name: str) -> None:
    """Report a slip in the name of the bundled model, which needs no open_clip."""
    if near(name, ["mini"]):
        raise InputError(f"There is no model {name!r}: did you mean 'mini'?")


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


PAPER = ("RN50:openai", "ViT-B-16:openai")  # the backbones of the paper


@dataclass(frozen=True)
class EncoderRow:
    """One encoder that ``load_encoder`` knows."""

    name: str  # what to give as --model
    kind: str  # mini, openclip, huggingface or onnx
    source: str  # where the weights come from
    here: bool | None  # whether they are on this machine; None: it cannot be told
    needs: str | None = None  # the extra that must be installed first


def list_encoders(pattern: str | None = None) -> list[EncoderRow]:
    """mini, the paper's models, Hugging Face and ONNX folders; with a pattern, what matches it.

    A pattern without ``*`` matches anywhere in MODEL:TAG, whatever the case.
    """
    if pattern is None:
        return [_mini_row(), *_open_clip_rows(PAPER), _hugging_face_row(), _onnx_row()]
    fixed = [_mini_row(), _hugging_face_row(), _onnx_row()]
    fixed = [row for row in fixed if _matches(row.name, pattern)]
    rows = fixed + _open_clip_rows(_known(pattern))
    if not rows:
        none = f"No model matches {pattern!r}: try a shorter pattern, such as vit or rn."
        raise InputError(open_clip_problem() or none)  # most models are open_clip's
    return rows


def open_clip_problem() -> str | None:
    """Why open_clip cannot be used, as a sentence; None if it can."""
    try:
        library("open_clip", "openclip")
    except InputError as error:
        return str(error)
    return None


def _mini_row() -> EncoderRow:
    return EncoderRow("mini", "mini", "bundled with crg", here=True)


def _hugging_face_row() -> EncoderRow:
    needs = None if _can_import("transformers") else "huggingface"
    source = "huggingface.co, or a folder, through transformers"
    return EncoderRow("hf:USER/MODEL", "huggingface", source, here=None, needs=needs)


def _onnx_row() -> EncoderRow:
    needs = None if _can_import("onnxruntime") else "onnx"
    source = "a folder that crg export wrote"
    return EncoderRow("onnx:FOLDER", "onnx", source, here=None, needs=needs)


def _known(pattern: str) -> list[str]:
    if open_clip_problem():
        return [name for name in PAPER if _matches(name, pattern)]
    names = library("open_clip", "openclip").list_pretrained(as_str=True)
    return sorted((n for n in names if _matches(n, pattern)), key=lambda n: n not in PAPER)


def _open_clip_rows(names: tuple[str, ...] | list[str]) -> list[EncoderRow]:
    if open_clip_problem():
        source = "huggingface.co, through open_clip"
        return [EncoderRow(name, "openclip", source, None, "openclip") for name in names]
    from crg.encoders.weights import find_weights, published_at

    rows = []
    for name in names:
        model, _, tag = name.partition(":")
        found = find_weights(model, tag)
        source = str(found) if found else published_at(model, tag)
        rows.append(EncoderRow(name, "openclip", source, here=found is not None))
    return rows


def _matches(name: str, pattern: str) -> bool:
    glob = pattern.replace("/", "-").lower()
    return fnmatch.fnmatchcase(name.lower(), glob if "*" in glob else f"*{glob}*")


def _can_import(name: str) -> bool:
    try:
        library(name, "")
    except InputError:
        return False
    return True
