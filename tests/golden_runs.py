"""Golden runs: logits of every built-in method on a fixed stream.

``python tests/golden_runs.py`` rewrites them; nothing else does. A change there is a
change of behaviour and belongs in the changelog.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

import crg
from streams import clustered

PATH = Path(__file__).parent / "golden.json"
METHODS = (
    "zero_shot", "tda", "dpe", "crg", "anchored",
    "dota", "oga", "onzeta", "freetta", "logit_bias", "class_prior",
)  # fmt: skip
CHECKPOINTS = (0, 1, 5, 30, 149)


def golden_run(method: str) -> dict[str, Any]:
    """Labels of all steps and logits at a few, on 150 images of six views."""
    text, stream = clustered(seed=42, n=150, n_classes=6, width=16, n_views=6)
    adapter = crg.create(method, crg.Task([f"class {k}" for k in range(6)], text, 20.0))
    predictions = [adapter.step(views) for views in stream]
    return {
        "labels": [prediction.label for prediction in predictions],
        "logits": {str(at): predictions[at].logits.tolist() for at in CHECKPOINTS},
    }


if __name__ == "__main__":
    PATH.write_text(json.dumps({name: golden_run(name) for name in METHODS}, indent=1) + "\n")
    print(f"wrote {PATH} with numpy {np.__version__}")
