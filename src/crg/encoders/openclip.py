"""Models of open_clip: published weights or a checkpoint file, on any device of torch."""

from __future__ import annotations

import contextlib
import logging
import warnings
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from crg.encoders.base import first_line, install, library
from crg.encoders.openclip_prompts import OpenClipPrompts
from crg.encoders.torch_encoder import TorchEncoder
from crg.encoders.torchscript import is_torchscript
from crg.encoders.weights import (
    Wanted,
    fetch_weights,
    load_weights,
    parse_name,
    published_at,
    published_configuration,
    published_tags,
    tensors_only,
    weights_fingerprint,
)
from crg.images.preprocessing import Preprocessing
from crg.types import InputError

_PREPARED = ("mean", "std", "interpolation", "resize_mode")  # size is the architecture's


class Built(NamedTuple):
    """A model on the host, in fp32, with all that belongs to it."""

    model: Any
    tokenizer: Any
    configuration: dict[str, Any]
    preprocessing: Preprocessing
    source: str


def _built_by_name(wanted: Wanted) -> Built:
    if wanted.file is not None:
        file, source = wanted.file, str(wanted.file)
        habits = _habits(wanted.model, file)
    else:
        tag = wanted.tag or ""
        file, source = fetch_weights(wanted.model, tag), published_at(wanted.model, tag)
        habits = published_configuration(wanted.model, tag)
    model = _created(
        wanted.model,
        force_quick_gelu=bool(habits.get("quick_gelu")),
        force_preprocess_cfg={key: habits[key] for key in _PREPARED if key in habits},
    )
    load_weights(model, file)
    return _complete(wanted.model, model, source, bool(habits.get("quick_gelu")))


def _built_from_folder(name: str) -> Built:
    place = name.split(":", 1)[1]
    try:
        with tensors_only():
            model = _created(name, require_pretrained=True)
    except InputError:
        raise
    except Exception as error:
        raise InputError(
            f"The model {name} cannot be loaded ({first_line(error)}): "
            f"{place} must hold open_clip_config.json and the weights."
        ) from None
    return _complete(name, model, place, quick_gelu=False)


def _habits(model: str, file: Path) -> dict[str, Any]:
    """What all published weights of a model agree on; a file does not say it itself.

    OpenAI's own archives are the exception: they always want the quick GELU.
    """
    published = [published_configuration(model, tag) for tag in published_tags(model)]
    first = published[0] if published else {}
    agreed = {key: first[key] for key in first if all(p.get(key) == first[key] for p in published)}
    return agreed | ({"quick_gelu": True} if is_torchscript(file) else {})


def _created(name: str, **options: Any) -> Any:
    open_clip = library("open_clip", "openclip")
    try:
        return open_clip.create_model(name, pretrained_text=False, **options)
    except (ModuleNotFoundError, RuntimeError) as error:
        if "transformers" not in str(error):
            raise
        raise InputError(_needs_transformers(name, error)) from None


def _complete(name: str, model: Any, source: str, quick_gelu: bool) -> Built:
    configuration = dict(library("open_clip", "openclip").get_model_config(name))
    configuration["quick_gelu"] = quick_gelu or bool(configuration.get("quick_gelu"))
    prepared = _preprocessing(name, model.visual.preprocess_cfg)
    return Built(model, _tokenizer(name), configuration, prepared, source)


def _tokenizer(name: str) -> Any:
    try:
        return library("open_clip", "openclip").get_tokenizer(name)
    except ModuleNotFoundError as error:
        raise InputError(_needs_transformers(name, error)) from None
    except Exception as error:
        raise InputError(
            f"The tokenizer of {name} cannot be loaded ({first_line(error)}): "
            "connect to the internet once, or put it into a folder with the model "
            "and use local-dir:FOLDER."
        ) from None


def _preprocessing(name: str, given: dict[str, Any]) -> Preprocessing:
    size = given["size"]
    height, width = size if isinstance(size, (tuple, list)) else (size, size)
    if height != width or given["resize_mode"] not in ("shortest", "squash"):
        raise InputError(
            f"{name} wants images of {height} x {width} pixels fitted by "
            f"{given['resize_mode']!r}, which crg cannot make: choose another model."
        )
    return Preprocessing(
        size=int(height),
        mean=_channels(given["mean"]),
        std=_channels(given["std"]),
        interpolation="bilinear" if given["interpolation"] == "bilinear" else "bicubic",
        fit=given["resize_mode"],
    )


def _channels(given: Any) -> tuple[float, float, float]:
    red, green, blue = given if isinstance(given, (tuple, list)) else (given,) * 3
    return float(red), float(green), float(blue)


def _needs_transformers(name: str, error: Exception) -> str:
    return (
        f"{name} reads text with a tokenizer from Hugging Face ({first_line(error)}): "
        f"in the clone of crg, run {install('huggingface')}."
    )


@contextlib.contextmanager
def _quietly() -> Iterator[None]:
    """Keep open_clip from writing to the screen and from setting up the log of the program."""
    root, silent = logging.getLogger(), logging.NullHandler()
    root.addHandler(silent)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        root.removeHandler(silent)


class OpenClip(TorchEncoder):
    """A model of open_clip as an Encoder."""

    def __init__(
        self, name: str, *, device: str | None = None, precision: str | None = None
    ) -> None:
        library("open_clip", "openclip")
        super().__init__(device, precision)
        self.name = name
        wanted = parse_name(name)
        with _quietly():
            own = wanted.has_own_configuration
            built = _built_from_folder(wanted.model) if own else _built_by_name(wanted)
        model, self.tokenizer, self.configuration, self.preprocessing, self.source = built
        facts = {"model": self.configuration, "pictures": asdict(self.preprocessing)}
        self.fingerprint = weights_fingerprint(model, facts)
        self.width = int(self.configuration["embed_dim"])
        self.logit_scale = float(model.logit_scale.detach().exp())
        bias = getattr(model, "logit_bias", None)
        self.logit_bias = 0.0 if bias is None else float(bias.detach())
        self.model = model.eval().requires_grad_(False).to(self.device)

    def promptable(self) -> OpenClipPrompts:
        """The text half in fp32, into which context vectors can be put in place of words."""
        return OpenClipPrompts(self.name, self.model, self.tokenizer)

    def image_rows(self, images: Any) -> Any:
        """Features (B, D) of normalised images (B, 3, S, S)."""
        return self.model.encode_image(images)

    def text_rows(self, texts: list[str]) -> Any:
        """Features (n, D) of texts."""
        return self.model.encode_text(self.tokenizer(texts).to(self.device))
