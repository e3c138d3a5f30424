"""What there is to encode with, where the weights come from and whether they are here."""

from __future__ import annotations

import fnmatch
from dataclasses import dataclass

from crg.encoders.libraries import library
from crg.types import InputError

PAPER = ("RN50:openai", "ViT-B-16:openai")  # the backbones of the paper


@dataclass(frozen=True)
class EncoderRow:
    """One encoder that ``load_encoder`` knows."""

    name: str  # what to give as --model
    kind: str  # mini, openclip or onnx
    source: str  # where the weights come from
    here: bool | None  # whether they are on this machine; None: it cannot be told
    needs: str | None = None  # the extra that must be installed first


def list_encoders(pattern: str | None = None) -> list[EncoderRow]:
    """mini, the paper's models and ONNX folders; with a pattern, what matches it.

    A pattern without ``*`` matches anywhere in MODEL:TAG, whatever the case.
    """
    if pattern is None:
        return [_mini(), *_open_clip_rows(PAPER), _onnx()]
    fixed = [row for row in (_mini(), _onnx()) if _matches(row.name, pattern)]
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


def _mini() -> EncoderRow:
    return EncoderRow("mini", "mini", "bundled with crg", here=True)


def _onnx() -> EncoderRow:
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
