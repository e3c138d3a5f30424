"""An adapter's state as one safetensors file, read with suspicion."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import array_api_compat
import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save as to_bytes

from crg.extras import library
from crg.resources import FEW, GENERATED, TEXT_ENCODER, FewShot
from crg.types import Array, InputError, Task, parsed_json, printable

FORMAT = "crg-state"
VERSION = 2  # 2: the digest covers the header too
_DEFAULT_MODEL = "mini"  # the model of people who name none
_SAME_TEXT = 1e-3  # how far text features of the same words and weights may lie apart
_HEADER: dict[str, Any] = {
    "method": str, "options": dict, "class_names": list, "n_steps": int, "plain": dict,
    "logit_scale": float, "torch_device": str | None, "model": str | None, "about": dict,
}  # fmt: skip
_ABOUT: dict[str, Any] = {
    "model": str, "templates": list, "descriptions": dict | None,
    "views": int, "augment": str, "smallest_crop": int | float, "seed": int,
    "none_of_these": float | str | None, "sets": float | None,
}  # fmt: skip


@dataclass(frozen=True)
class Saved:
    """The contents of a state file."""

    method: str
    options: Mapping[str, Any]
    task: Task
    n_steps: int
    state: Mapping[str, Any]
    about: Mapping[str, Any] = field(default_factory=dict)  # what a classifier has to know
    model: str | None = None  # whose text encoder the method needs


def encoded(saved: Saved) -> bytes:
    """The content of a file: arrays as tensors, everything else as JSON in the header."""
    task, state = saved.task, saved.state
    arrays = {key: each for key, each in state.items() if array_api_compat.is_array_api_obj(each)}
    text, few = task.text_features, task.resources.get(FEW)
    header = {
        "format": FORMAT,
        "version": VERSION,
        "method": saved.method,
        "options": dict(saved.options),
        "class_names": task.class_names,
        "logit_scale": task.logit_scale,
        "n_steps": saved.n_steps,
        "torch_device": str(text.device) if array_api_compat.is_torch_array(text) else None,
        "plain": {key: value for key, value in state.items() if key not in arrays},
        "about": dict(saved.about),
    }
    tensors = {f"state.{key}": _on_host(value) for key, value in arrays.items()}
    tensors["text_features"] = _on_host(text)
    if few is not None:
        header["few_labels"], tensors["few_features"] = list(few.labels), _on_host(few.features)
    if GENERATED in task.resources:
        header[GENERATED] = task.resources[GENERATED]
    if TEXT_ENCODER in task.resources:  # which is not saved, only named
        header["model"] = task.resources[TEXT_ENCODER].name
    header["sha256"] = _digest(header, tensors)
    return bytes(to_bytes(tensors, {"crg": json.dumps(header)}))


def is_state(path: str | os.PathLike[str]) -> bool:
    """Whether a file looks like one that ``write`` wrote; it may still be damaged."""
    try:
        with safe_open(path, framework="np") as file:
            return "crg" in (file.metadata() or {})
    except (OSError, SafetensorError):
        return False


def read(path: str | os.PathLike[str]) -> Saved:
    """Read what ``write`` wrote; anything else is refused in one sentence."""
    header, tensors = _contents(Path(path))
    version = header.get("version")
    if version != VERSION:
        raise InputError(
            f"{path} is a state of format version {version!r:.40} but this crg reads "
            f"version {VERSION}: use the crg that wrote it or start over."
        )
    given = header.pop("sha256", None)
    if given != _digest(header, tensors):
        raise _damaged(path, "its checksum does not fit")
    _check_kinds(path, {name: header.get(name) for name in _HEADER}, _HEADER)
    try:
        text = _placed(tensors.pop("text_features"), header["torch_device"])
        resources = _resources(header, tensors)
        arrays = {key.removeprefix("state."): value for key, value in tensors.items()}
        return Saved(
            method=header["method"],
            options=header["options"],
            task=Task(header["class_names"], text, header["logit_scale"], resources),
            n_steps=header["n_steps"],
            state={**arrays, **header["plain"]},
            about=header["about"],
            model=header.get("model"),
        )
    except (KeyError, TypeError) as error:
        raise _damaged(path, f"{error} is missing or wrong") from None


def model_of(saved: Saved | None, state: str) -> str:
    """The model that a state was saved with, or the default; a file might be a stranger's."""
    if saved is None:
        return _DEFAULT_MODEL
    model: str = checked_about(saved, state)["model"]
    places = [model, model.partition(":")[2]]  # MODEL:FILE, onnx:FOLDER, hf:FOLDER
    if "/" in model or os.sep in model or any(each and Path(each).exists() for each in places):
        raise InputError(
            f"{state} was saved with the model {printable(model)}, which is not known by its "
            "name alone: name the model too."
        )
    return model


def checked_about(saved: Saved, state: str) -> dict[str, Any]:
    """Arguments of the constructor that a state knows; an edited file is refused."""
    about = {"model": _DEFAULT_MODEL, **saved.about}
    _check_kinds(state, about, _ABOUT)
    return about


def check_method(saved: Saved, state: str, method: str | None) -> None:
    """Refuse a state that another method has made."""
    if method not in (None, saved.method):
        raise InputError(
            f"{state} was saved by method {saved.method!r}, not {method!r}: "
            "leave the method out or start over."
        )


def check_fits(saved: Saved, state: str, asked: Mapping[str, Any], task: Task) -> None:
    """Refuse a state of other values of the options ``asked`` for, other classes or other text."""
    for name, value in asked.items():
        before = saved.options.get(name, value)
        if before != value:
            raise InputError(
                f"{state} was saved with {name}={printable(str(before))}: "
                "leave the option out or start over."
            )
    known = saved.task
    common = [name for name in known.class_names if name in task.class_names]
    if not common:
        raise InputError(
            f"{state} was saved for {known.n_classes} other classes, from "
            f"{known.class_names[0]!r} to {known.class_names[-1]!r}: "
            "leave the classes out or start over."
        )
    ours = task.text_features[[task.index_of(name) for name in common], :]
    theirs = np.asarray(known.text_features)[[known.index_of(name) for name in common], :]
    if ours.shape != theirs.shape or np.abs(ours - theirs).max() > _SAME_TEXT:
        raise InputError(
            f"{state} was saved with another model or other prompts: "
            "name the same ones or start over."
        )


def _resources(header: Mapping[str, Any], tensors: dict[str, Any]) -> dict[str, Any]:
    found = {GENERATED: header[GENERATED]} if type(header.get(GENERATED)) is int else {}
    if "few_features" not in tensors:
        return found
    features = _placed(tensors.pop("few_features"), header["torch_device"])
    return {**found, FEW: FewShot(features, header["few_labels"])}


def _digest(header: Mapping[str, Any], tensors: Mapping[str, np.ndarray[Any, Any]]) -> str:
    """Of everything: the header, and of every tensor its name, kind, shape and bytes."""
    digest = hashlib.sha256(json.dumps(header, sort_keys=True).encode())
    for name in sorted(tensors):
        tensor = np.ascontiguousarray(tensors[name])
        digest.update(f"{name} {tensor.dtype.str} {tensor.shape}".encode())
        digest.update(tensor.data)
    return digest.hexdigest()


def _contents(path: Path) -> tuple[dict[str, Any], dict[str, np.ndarray[Any, Any]]]:
    if path.is_dir():
        raise InputError(f"{path} is a folder: give a state that crg saved.")
    try:
        with safe_open(path, framework="np") as file:
            header = parsed_json((file.metadata() or {}).get("crg", "{}"))
            if not isinstance(header, dict) or header.get("format") != FORMAT:
                raise InputError(f"{path} is not a saved crg state: give one.")
            return header, {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    except InputError:
        raise
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error}): check the path.") from None
    except (SafetensorError, ValueError, TypeError) as error:
        raise _damaged(path, f"or not a state that crg saved: {error}") from None


def _check_kinds(
    path: str | os.PathLike[str], values: Mapping[str, Any], kinds: Mapping[str, Any]
) -> None:
    """Refuse an edited header before anything is built from it."""
    for name, value in values.items():
        is_right = isinstance(value, kinds.get(name, ()))
        if name == "class_names" and is_right:
            is_right = all(isinstance(each, str) for each in value)
        if name == "n_steps" and is_right:
            is_right = value is not True and 0 <= value < 2**63
        if not is_right:
            raise _damaged(path, f"{name!r} is missing or wrong")


def _damaged(path: str | os.PathLike[str], reason: str) -> InputError:
    return InputError(f"{path} is damaged ({reason}): restore it from a copy or start over.")


def _on_host(array: Array) -> np.ndarray[Any, Any]:
    if isinstance(array, np.ndarray):
        return np.ascontiguousarray(array)
    return np.ascontiguousarray(array.detach().cpu().numpy())


def _placed(array: np.ndarray[Any, Any], torch_device: str | None) -> Array:
    if torch_device is None:
        return array
    tensor = library("torch", "torch").from_numpy(array.copy())
    try:
        return tensor.to(torch_device)
    except (RuntimeError, AssertionError):
        return tensor  # the device of old is not on this machine
