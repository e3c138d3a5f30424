"""Encoding on Ray: a real one on this machine, in a process of its own."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import pytest

from crg.encoding import Wording, encode
from crg.engine.ray_encoding import encode_on_ray
from crg.images.views import Recipe
from encoding_fakes import HashEncoder, dots
from ray_told import told_by
from sentences import refused_in_one_sentence

pytest.importorskip("ray")


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the jobs of the script tell."""
    return told_by("ray_jobs.py", tmp_path_factory.mktemp("ray"))


def test_ray_makes_the_same_bytes_even_if_it_loses_an_actor(told: dict[str, Any]) -> None:
    """A killed actor's block is done again, and the store is that of the local engine."""
    assert told["lost"] == ""
    assert told["lost is the same"]


def test_a_cluster_of_our_own_ends_with_the_job(told: dict[str, Any]) -> None:
    """A cluster that the job started is shut down, and one that was there is left alone."""
    assert told["ended"]
    assert told["left alone"]


def test_other_weights_on_the_cluster_are_noticed(told: dict[str, Any]) -> None:
    """Actors with another file of weights are refused."""
    assert "weights of hash" in told["weights"] and told["weights"].endswith("on each.")


def test_unreadable_images_are_told_from_afar(told: dict[str, Any]) -> None:
    """The sentence arrives, what was done is kept, and the corrected set ends in the same bytes."""
    assert "dot 33.png" in told["unreadable"] and "--skip-unreadable" in told["unreadable"]
    assert told["corrected"] == ""
    assert told["corrected is the same"]


def test_a_cluster_that_does_not_answer_is_reported(tmp_path: Path) -> None:
    """An address where nobody listens gives one sentence at once."""
    with refused_in_one_sentence("127.0.0.1:1 cannot be used", "--address"):
        encode(
            *(dots(), HashEncoder(), Recipe(), tmp_path / "s"),
            wording=Wording(cache=None),
            run=functools.partial(encode_on_ray, address="127.0.0.1:1"),
        )
