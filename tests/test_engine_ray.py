"""Grids on Ray: a real one on this machine, in another process."""

from __future__ import annotations

from typing import Any

import pytest

from crg.engine.ray import run_all_on_ray
from made_experiments import spec
from ray_scripts import printed_by
from sentences import refused_in_one_sentence

pytest.importorskip("ray")


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The output of the script."""
    return printed_by("ray_grids.py", tmp_path_factory.mktemp("ray"))


def test_ray_gives_the_same_results_even_if_a_worker_is_killed(printed: dict[str, Any]) -> None:
    """A worker dies in mid-grid, its run is done again, and every answer is that of one process."""
    assert printed["killed"] >= 1
    assert printed["the same"]


def test_a_run_that_fails_on_ray_is_not_the_end(printed: dict[str, Any]) -> None:
    """Two runs fail with the same sentences as on this machine."""
    missing, unknown = sorted(printed["failures"], key=lambda reason: "no method" in reason)
    assert "none.npz does not exist" in missing
    assert unknown.startswith("There is no method 'no_such'")


def test_ray_reports_runs_at_work(printed: dict[str, Any]) -> None:
    """Runs that take a while are reported while they are at work."""
    assert printed["reported"] and set(printed["reported"]) <= set(range(10))


def test_a_run_that_always_kills_its_worker_is_given_up(printed: dict[str, Any]) -> None:
    """It is a failure with a remedy, and the run beside it is done."""
    [reason] = printed["lost"]
    assert reason.startswith("Ray lost the worker") and "try fewer --workers" in reason


def test_stopping_early_frees_the_cluster_and_leaves_it(printed: dict[str, Any]) -> None:
    """Runs at work are cancelled, and a cluster that was there before keeps running."""
    assert printed["first"] == "crg"
    assert printed["free again"] and printed["left alone"]


def test_a_cluster_of_our_own_ends_with_the_grid(printed: dict[str, Any]) -> None:
    """A cluster that was started for a grid is shut down."""
    assert printed["ended"]


def test_a_cluster_that_does_not_answer_is_reported() -> None:
    """An address that does not answer gives one sentence at once."""
    with refused_in_one_sentence("127.0.0.1:1 cannot be used", "--address"):
        next(run_all_on_ray([spec("a.npz", "crg")], address="127.0.0.1:1"))
