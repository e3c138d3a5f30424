"""Options that authors published for single datasets."""

from __future__ import annotations

import tomllib
from importlib import resources

import numpy as np
import pytest

import crg
from crg.datasets.catalog import catalogue
from crg.methods.options import build_config
from crg.methods.registry import typed_options
from crg.presets import presets_of, with_preset
from sentences import refused_in_one_sentence

TASK = crg.Task(["cat", "dog"], np.eye(2, 4))


@pytest.mark.parametrize("method", ["tda", "dpe"])
def test_every_preset_is_allowed(method: str) -> None:
    """Each preset names options that the method has, within their limits."""
    config = crg.get_method(method).Config
    assert len(presets_of(method)) >= 11
    for preset in presets_of(method):
        built = build_config(method, config, {"preset": preset})
        assert all(
            getattr(built, k) == v for k, v in with_preset(method, {"preset": preset}).items()
        )


def test_presets_are_for_datasets_of_the_catalogue() -> None:
    """The names of the datasets are those of the catalogue."""
    text = resources.files("crg").joinpath("published.toml").read_text("utf-8")
    for datasets in tomllib.loads(text).values():
        assert set(datasets) <= set(catalogue())


def test_a_preset_is_never_the_default() -> None:
    """Without being asked for, no preset is used, and the one for DTD differs from the default."""
    plain, tuned = crg.create("tda", TASK), crg.create("tda", TASK, preset="published/dtd")
    assert plain.config.positive_sharpness == 5.0 and tuned.config.positive_sharpness == 3.0


def test_what_is_given_beside_a_preset_wins() -> None:
    """An option of one's own is not overruled."""
    adapter = crg.create("dpe", TASK, preset="published/dtd", beta=9.0)
    assert (adapter.config.beta, adapter.config.align) == (9.0, 0.2)


def test_runs_are_recorded_with_the_options_themselves() -> None:
    """A record holds what the preset stands for, so that it can be repeated without it."""
    options = typed_options("tda", {"preset": "published/eurosat"})
    assert options == {"positive_weight": 4.0, "positive_sharpness": 8.0}


def test_unknown_presets_are_refused() -> None:
    """A preset that a method does not have is refused with those it has."""
    with refused_in_one_sentence("published/dtd"):
        crg.create("tda", TASK, preset="published/mnist")
    with refused_in_one_sentence("none"):
        crg.create("crg", TASK, preset="published/dtd")
