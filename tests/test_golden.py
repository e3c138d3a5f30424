"""Golden runs: methods still answer as they did when the file was written."""

from __future__ import annotations

import json

import numpy as np
import pytest

from golden_runs import CHECKPOINTS, METHODS, PATH, golden_run


@pytest.mark.parametrize("method", METHODS)
def test_method_answers_as_before(method: str) -> None:
    """All labels and the logits at five checkpoints are those of the golden run."""
    expected, got = json.loads(PATH.read_text())[method], golden_run(method)
    assert got["labels"] == expected["labels"]
    for at in map(str, CHECKPOINTS):
        largest = np.abs(expected["logits"][at]).max()
        np.testing.assert_allclose(
            got["logits"][at], expected["logits"][at], rtol=0, atol=1e-9 * largest
        )
