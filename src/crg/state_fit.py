"""Whether a saved state fits the model, prompts, classes and method that are asked for."""

from __future__ import annotations

from typing import Any

import numpy as np

from crg.adapter import names_a_file
from crg.methods.options import build_config
from crg.methods.registry import get_method
from crg.presets import with_preset
from crg.state_file import Saved
from crg.types import InputError, Task, printable

DEFAULT_MODEL = "mini"  # the model of people who name none
_SAME_TEXT = 1e-3  # how far text features of the same words and weights may lie apart


def model_of(saved: Saved | None, state: str) -> str:
    """The model that a state was saved with; a name that is no file's, which might be a trap."""
    model = DEFAULT_MODEL if saved is None else checked_about(saved, state)["model"]
    if names_a_file(model):
        raise InputError(
            f"{state} was saved with the model {printable(model)}, which is not known by its "
            "name alone: name the model too."
        )
    return model


_ABOUT: dict[str, Any] = {
    "model": str,
    "templates": list,
    "descriptions": (dict, type(None)),
    "prompts": str,
    "views": int,
    "augment": str,
    "smallest_crop": (int, float),
    "seed": int,
}


def checked_about(saved: Saved, state: str) -> dict[str, Any]:
    """Arguments of the constructor that a state knows; an edited file is refused."""
    about = {"model": DEFAULT_MODEL, **saved.about}
    for name, value in about.items():
        if name not in _ABOUT or not isinstance(value, _ABOUT[name]):
            raise InputError(
                f"{state} is damaged ({name!r} is wrong): restore it from a copy or start over."
            )
    return about


def check_method(saved: Saved, state: str, method: str | None, options: dict[str, Any]) -> None:
    """Refuse a state that was made by another method or with other options."""
    if method not in (None, saved.method):
        raise InputError(
            f"{state} was saved by method {saved.method!r}, not {method!r}: "
            "leave the method out or start over."
        )
    kind = get_method(saved.method).Config
    asked = build_config(saved.method, kind, options)
    for name in with_preset(saved.method, options):
        before = saved.options.get(name, getattr(asked, name))
        if before != getattr(asked, name):
            raise InputError(
                f"{state} was saved with {name}={printable(str(before))}: "
                "leave the option out or start over."
            )


def check_text(saved: Saved, state: str, task: Task) -> None:
    """Refuse a state that shares no class with ``task``, or whose text features differ."""
    before = saved.task
    common = [name for name in before.class_names if name in task.class_names]
    if not common:
        raise InputError(
            f"{state} was saved for {before.n_classes} other classes, from "
            f"{before.class_names[0]!r} to {before.class_names[-1]!r}: "
            "leave the classes out or start over."
        )
    ours = task.text_features[[task.index_of(name) for name in common], :]
    theirs = np.asarray(before.text_features)[[before.index_of(name) for name in common], :]
    if ours.shape != theirs.shape or np.abs(ours - theirs).max() > _SAME_TEXT:
        raise InputError(
            f"{state} was saved with another model or other prompts: "
            "name the same ones or start over."
        )
