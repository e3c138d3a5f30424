"""CLIP-like models behind one small protocol: load one by name, list those that there are."""

from __future__ import annotations

import fnmatch
import functools
from collections.abc import Iterable
from dataclasses import dataclass

from crg.encoders.base import Encoder as Encoder
from crg.extras import library
from crg.resources import TEXT_ENCODER, PromptableTextEncoder
from crg.suggest import near
from crg.types import InputError, Task

PAPER = ("RN50:openai", "ViT-B-16:openai")  # the backbones of the paper
_HUB = "huggingface.co, or a folder, through transformers"
_FOLDERS = (  # name, kind, source, library, extra
    ("hf:USER/MODEL", "huggingface", _HUB, "transformers", "huggingface"),
    ("onnx:FOLDER", "onnx", "crg encoders export", "onnxruntime", "onnx"),
)


def load_encoder(name: str, *, device: str | None = None, precision: str | None = None) -> Encoder:
    """Load the encoder of that name.

    ``mini`` is bundled; ``onnx:FOLDER`` is a folder that ``crg encoders export`` wrote;
    ``hf:USER/MODEL`` and ``hf:FOLDER`` are models of transformers; anything else is a model of
    open_clip: ``ViT-B-16``, ``ViT-B-16:TAG`` or ``ViT-B-16:FILE``.
    """
    name = name.strip()
    kind, _, rest = name.partition(":")
    if name == "mini":
        if device not in (None, "cpu") or precision not in (None, "fp32"):
            raise InputError(
                "mini runs on the processor in fp32 only: leave device and precision out "
                "or choose another model."
            )
        from crg.encoders.mini import Mini

        return Mini()
    if kind == "onnx":
        from crg.encoders.onnx import Onnx

        return Onnx(rest, device=device, precision=precision)
    if kind == "hf":
        from crg.encoders.huggingface import HuggingFace

        return HuggingFace(rest, device=device, precision=precision)
    if near(name, ["mini"]):  # which needs no open_clip
        raise InputError(f"There is no model {name!r}: did you mean 'mini'?")
    from crg.encoders.weights import check_file

    check_file(kind, rest)
    from crg.encoders.openclip import OpenClip

    return OpenClip(name, device=device, precision=precision)


def equipped(task: Task, needs: Iterable[str], model: str | None) -> Task:
    """The task with the text encoder of ``model``, if a method needs one and has none."""
    if TEXT_ENCODER not in needs or model is None or TEXT_ENCODER in task.resources:
        return task
    return task.with_resources({TEXT_ENCODER: load_text_encoder(model)})


@functools.lru_cache(maxsize=1)
def load_text_encoder(model: str) -> PromptableTextEncoder:
    """Load the text encoder of a model, for prompts that are tuned; the last one is cached."""
    encoder = load_encoder(model)
    if not hasattr(encoder, "promptable"):
        raise InputError(
            f"The text encoder of {model} takes no embeddings: "
            "encode with mini or a model of open_clip."
        )
    text_encoder: PromptableTextEncoder = encoder.promptable()
    return text_encoder


@dataclass(frozen=True)
class EncoderRow:
    """One encoder that ``load_encoder`` knows."""

    name: str  # as in --model
    kind: str  # mini, openclip, huggingface or onnx
    source: str  # where the weights come from
    here: bool | None  # whether they are on this machine; None if unknown
    needs: str | None = None  # the extra that must be installed first


def list_encoders(pattern: str | None = None) -> list[EncoderRow]:
    """List mini, the paper's models, Hugging Face and ONNX folders, or all that match a pattern.

    A pattern without ``*`` matches anywhere in MODEL:TAG, whatever the case.
    """
    rows = [EncoderRow("mini", "mini", "bundled with crg", here=True), *_open_clip_rows(pattern)]
    for name, kind, source, module, extra in _FOLDERS:
        needs = extra if problem_with(module, extra) else None
        rows.append(EncoderRow(name, kind, source, None, needs))
    rows = [row for row in rows if _matches(row.name, pattern)]
    if not rows:
        none = f"No model matches {pattern!r}: try a shorter pattern, such as vit or rn."
        raise InputError(problem_with("open_clip", "openclip") or none)  # most models are its
    return rows


def problem_with(module: str, extra: str) -> str | None:
    """Why the library of an extra cannot be used, as a sentence; None if it can."""
    try:
        library(module, extra)
    except InputError as error:
        return str(error)
    return None


def _open_clip_rows(pattern: str | None) -> list[EncoderRow]:
    """The paper's models or, with a pattern, all of open_clip's that match it."""
    if problem_with("open_clip", "openclip"):
        source = "huggingface.co, through open_clip"
        return [EncoderRow(name, "openclip", source, None, "openclip") for name in PAPER]
    from crg.encoders.weights import find_weights, published_at

    every = library("open_clip", "openclip").list_pretrained(as_str=True) if pattern else PAPER
    rows = []
    for name in sorted(every, key=lambda name: name not in PAPER):
        if _matches(name, pattern):
            found = find_weights(*name.split(":"))
            source = str(found or published_at(*name.split(":")))
            rows.append(EncoderRow(name, "openclip", source, here=found is not None))
    return rows


def _matches(name: str, pattern: str | None) -> bool:
    glob = (pattern or "*").replace("/", "-").lower()
    return fnmatch.fnmatchcase(name.lower(), glob if "*" in glob else f"*{glob}*")
