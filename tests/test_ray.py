"""Encoding on Ray: a real one on this machine, in another process."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import pytest

from crg.encoding import Wording, encode
from crg.engine.ray import encode_on_ray
from crg.images.views import Recipe
from encoding_fakes import HashEncoder, dots
from ray_scripts import printed_by
from sentences import refused_in_one_sentence

pytest.importorskip("ray")


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The output of the script."""
    return printed_by("ray_jobs.py", tmp_path_factory.mktemp("ray"))


def test_ray_makes_the_same_bytes_even_if_it_loses_an_actor(printed: dict[str, Any]) -> None:
    """A killed actor's block is done again, and the store is that of the local engine."""
    assert printed["lost"] == ""
    assert printed["lost is the same"]


def test_a_cluster_of_our_own_ends_with_the_job(printed: dict[str, Any]) -> None:
    """A cluster that the job started is shut down, and one that was there is left alone."""
    assert printed["ended"]
    assert printed["left alone"]


def test_other_weights_on_the_cluster_are_noticed(printed: dict[str, Any]) -> None:
    """Actors with another file of weights are refused."""
    assert "weights of hash" in printed["weights"] and printed["weights"].endswith("on each.")


def test_unreadable_images_are_reported(printed: dict[str, Any]) -> None:
    """The sentence arrives, what was done is kept, and the corrected set ends in the same bytes."""
    assert "dot 33.png" in printed["unreadable"] and "--skip-unreadable" in printed["unreadable"]
    assert printed["corrected"] == ""
    assert printed["corrected is the same"]


def test_a_cluster_that_does_not_answer_is_reported(tmp_path: Path) -> None:
    """An address that does not answer gives one sentence at once."""
    with refused_in_one_sentence("127.0.0.1:1 cannot be used", "--address"):
        encode(
            *(dots(), HashEncoder(), Recipe(), tmp_path / "s"),
            wording=Wording(cache=None),
            run=functools.partial(encode_on_ray, address="127.0.0.1:1"),
        )
