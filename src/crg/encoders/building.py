"""From a name to an open_clip model with its weights, tokenizer and preprocessing."""

from __future__ import annotations

import contextlib
import logging
import warnings
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from crg.encoders.libraries import first_line, library
from crg.encoders.names import Wanted, parse_name, published_configuration, published_tags
from crg.encoders.weights import (
    fetch_weights,
    is_torchscript,
    load_weights,
    published_at,
    weights_fingerprint,
)
from crg.preprocessing import Preprocessing
from crg.types import InputError

_PREPARED = ("mean", "std", "interpolation", "resize_mode")  # size is the architecture's


@dataclass(frozen=True, eq=False)
class Built:
    """A model on the host, in fp32, with all that belongs to it."""

    model: Any
    tokenizer: Any
    configuration: dict[str, Any]
    preprocessing: Preprocessing
    source: str

    def fingerprint(self) -> str:
        """Of the weights and of whatever else decides the features."""
        facts = {"model": self.configuration, "pictures": asdict(self.preprocessing)}
        return weights_fingerprint(self.model, facts)


def build(name: str) -> Built:
    """The model that ``name`` stands for."""
    wanted = parse_name(name)
    with _quietly():
        if wanted.has_own_configuration:
            return _built_from_folder(wanted.model)
        return _built_by_name(wanted)


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
        "install crg-tta[huggingface]."
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
