"""Small feature files and plug-ins that the tests make themselves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from crg.features.files import write_features
from synthetic import gaussian_stream

PLUGIN = '''
"""A method from outside the package."""
import os
import time
from dataclasses import dataclass

import crg
from crg.types import Diagnostics

@crg.register
class Constant(crg.Method):
    """Always the same class."""

    name = "constant"
    paper = "none"

    @dataclass(frozen=True)
    class Config:
        answer: int = crg.option(0, "the class that is predicted", at_least=0)
        seconds: float = crg.option(0.0, "how long a step takes", at_least=0)

    def reset(self): ...

    def step(self, sample):
        time.sleep(self.config.seconds)
        logits = 0.0 * self.task.text_features[:, 0]
        logits[self.config.answer] = 1.0
        return self._predicted(logits, Diagnostics(0.0, self.config.answer))
'''


def raw_values(n: int = 12, k: int = 3, width: int = 8) -> dict[str, Any]:
    """The values of a sound feature file."""
    rng = np.random.default_rng(0)
    return {
        "image_features": rng.standard_normal((n, width)).astype(np.float32),
        "text_features": rng.standard_normal((k, width)).astype(np.float32),
        "class_names": np.array([f"name {i}" for i in range(k)]),
        "logit_scale": np.float32(100.0),
        "labels": np.arange(n) % k,
    }


def save_raw(path: Path, **changes: Any) -> Path:
    """A feature file with some values changed; a value of None leaves the name out."""
    values = {**raw_values(), **changes}
    np.savez(path, **{key: value for key, value in values.items() if value is not None})
    return path


def save_stream(path: Path, n: int = 40, seed: int = 0) -> Path:
    """A small labelled stream, wide enough for sums that do not depend on where arrays lie."""
    write_features(path, gaussian_stream(n=n, n_classes=4, width=64, seed=seed))
    return path


def save_plugin(folder: Path, body: str = "", name: str = "own_method") -> Path:
    """A file with a method of the user's own; ``body`` is what its step does first."""
    path = folder / f"{name}.py"
    path.write_text(PLUGIN.replace("time.sleep(self.config.seconds)", body) if body else PLUGIN)
    return path
