"""Golden runs: methods still answer as they did when ``golden.json`` was written.

``python tests/test_golden.py`` rewrites it; nothing else does. A change there is a change of
behaviour and belongs in the changelog.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import crg
from synthetic import clustered

PATH = Path(__file__).parent / "golden.json"
METHODS = (
    "zero_shot", "tda", "dpe", "crg", "anchored",
    "dota", "oga", "onzeta", "freetta", "logit_bias", "class_prior",
)  # fmt: skip


def golden_run(method: str) -> dict[str, Any]:
    """Labels of all steps and logits at a few, on 150 images of six views."""
    text, stream = clustered(seed=42, n=150, n_classes=6, width=16, n_views=6)
    adapter = crg.create(method, crg.Task([f"class {k}" for k in range(6)], text, 20.0))
    predictions = [adapter.step(views) for views in stream]
    return {
        "labels": [prediction.label for prediction in predictions],
        "logits": {str(at): predictions[at].logits.tolist() for at in (0, 1, 5, 30, 149)},
    }


@pytest.mark.parametrize("method", METHODS)
def test_method_answers_as_before(method: str) -> None:
    """All labels and the logits at five checkpoints are those of the golden run."""
    expected, got = json.loads(PATH.read_text())[method], golden_run(method)
    assert got["labels"] == expected["labels"]
    for at, logits in expected["logits"].items():
        allowed = 1e-9 * np.abs(logits).max()
        np.testing.assert_allclose(got["logits"][at], logits, rtol=0, atol=allowed)


if __name__ == "__main__":
    PATH.write_text(json.dumps({name: golden_run(name) for name in METHODS}, indent=1) + "\n")
    print(f"wrote {PATH} with numpy {np.__version__}")
