"""Runs and encoding on Ray: a real one on this machine, in another process."""

from __future__ import annotations

import functools
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from crg.engine.ray import encode_on_ray, run_all_on_ray
from encoding_fakes import dots, run
from made_experiments import spec
from sentences import check_refused

pytest.importorskip("ray")


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The JSON that the script prints on its last line."""
    script = Path(__file__).with_name("ray_jobs.py")
    command = [sys.executable, str(script), str(tmp_path_factory.mktemp("ray"))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    answers: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answers


def test_ray_gives_the_same_results_even_if_a_worker_is_killed(printed: dict[str, Any]) -> None:
    """Jobs of lost workers are done again or given up; our clusters end, others are left alone."""
    assert printed["killed"] >= 1 and printed["the same"]
    assert (printed["lost"], printed["corrected"]) == ("", "") and printed["same bytes"]
    assert printed["started"] == list(range(10))  # each run is reported
    missing, unknown = sorted(printed["failures"], key=lambda reason: "no method" in reason)
    assert "none.npz does not exist" in missing
    assert unknown.startswith("There is no method 'no_such'")
    [reason] = printed["given up"]
    assert reason.startswith("Ray lost the worker") and "try fewer --workers" in reason
    assert "weights of hash" in printed["weights"] and printed["weights"].endswith("on each.")
    assert printed["unreadable"] == "dot 33.png"
    assert printed["ended"] and printed["left alone"]
    assert printed["first"] == "crg" and printed["free again"]


def test_a_cluster_that_does_not_answer_is_reported(tmp_path: Path) -> None:
    """An address that does not answer gives one sentence at once."""
    far, words = "127.0.0.1:1", ("127.0.0.1:1 cannot be used", "--address")
    check_refused(words, next, run_all_on_ray([spec("a.npz", "crg")], address=far))
    on_ray = functools.partial(encode_on_ray, address=far)
    check_refused(words, run, dots(), tmp_path / "s", run=on_ray)
