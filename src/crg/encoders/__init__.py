"""CLIP-like models behind one small protocol."""

from __future__ import annotations

from difflib import get_close_matches
from importlib.util import find_spec

from crg.encoders.base import Encoder
from crg.encoders.listing import EncoderRow, list_encoders
from crg.types import InputError

__all__ = ["Encoder", "EncoderRow", "list_encoders", "load_encoder"]


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
    """Where open_clip is not there to know its models, a slip in ours is told of."""
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
