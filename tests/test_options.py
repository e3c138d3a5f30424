"""Options of methods: what a field may be, and what authors published for single datasets."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import crg
from crg import option
from crg.datasets.catalog import catalogue
from crg.methods.options import build_config
from crg.methods.registry import typed_options
from crg.presets import presets_of, with_preset
from crg.suggest import nearest
from sentences import check_refused


@dataclass(frozen=True)
class Config:
    """One option of every kind."""

    queue_size: int = option(12, "slots per queue", at_least=1)
    share: float = option(0.1, "fraction of views kept", above=0, at_most=1)
    rare: float = option(0.0, "zero or more than one", at_least=1, or_zero=True)
    negative: bool = option(True, "use the negative cache")
    predict_on: str = option("original", "which view", choices=("original", "confident"))


@pytest.mark.parametrize(
    ("method", "name", "limit", "beyond"),
    [("crg", "beta", 30.0, 50.0), ("crg", "eps", 1e-9, 1e-300), ("dpe", "eps", 1e-9, 1e-300),
     ("dpe", "temperature", 1e6, 1e300), ("logit_bias", "prior", 1e-9, 5e-324)],
)  # fmt: skip
def test_numbers_at_their_limits_give_finite_answers(
    method: str, name: str, limit: float, beyond: float
) -> None:
    """Beyond them single precision would overflow, or divide nothing by nothing."""
    task, dice = crg.Task(list("abcdef"), np.eye(6, 8)), np.random.default_rng(1)
    adapter = crg.create(method, task, **{name: limit})
    for views in dice.normal(size=(40, 3, 8)):
        assert np.isfinite(adapter.step(views).probs).all()
    check_refused(f"'{name}' is {beyond}", crg.create, method, task, **{name: beyond})


@pytest.mark.parametrize(
    ("name", "value", "kept"),
    [
        *(("queue_size", value, 3) for value in ("3", 3.0, 3)),
        *(("share", value, kept) for value, kept in (("0.5", 0.5), ("1e-3", 0.001), (1, 1.0))),
        *(("negative", value, False) for value in ("false", "No", False)),
        *(("negative", value, True) for value in ("on", "1")),
        ("predict_on", "confident", "confident"),
        *(("rare", value, float(value)) for value in (0, 5)),
    ],
)
def test_values_are_read_as_the_fields_type(name: str, value: Any, kept: Any) -> None:
    """Text and equal numbers become a value of exactly the default's type."""
    read = getattr(build_config("it", Config, {name: value}), name)
    assert read == kept and type(read) is type(kept)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("queue_size", 0, "at least 1"),
        *(("queue_size", odd, "a whole number") for odd in ("many", 1.5, "1.5", True, math.inf)),
        ("share", 0, "above 0"),
        ("share", 1.01, "at most 1"),
        *(("share", odd, "number") for odd in ("nan", math.nan, "inf", [0.1])),
        *(("negative", odd, "true or false") for odd in ("perhaps", 1)),
        ("predict_on", "both", "original, confident"),
        ("predict_on", 3, "a word"),
        ("rare", 0.5, "0 or at least 1"),
        ("que_size", 3, "'queue_size'"),
        ("zzz", 3, "negative, predict_on, queue_size, rare, share"),
    ],
)
def test_bad_values_are_refused(name: str, value: Any, words: str) -> None:
    """A value that the field does not allow is refused in one sentence that names the option."""
    check_refused((name, words), build_config, "it", Config, {name: value})


def test_nearest_offers_what_comes_close() -> None:
    """The nearest names are offered, or all of them when none is near."""
    assert nearest("shares", ["share", "size"]) == "did you mean 'share'?"
    assert nearest("qqq", ["share", "size"]) == "there is share, size."
    assert nearest("qqq", []) == "it has none."
    assert nearest("VIT-B16", ["ViT-B-16", "RN50"]) == "did you mean 'ViT-B-16'?"
    assert nearest("cats", ["share"], "see there.") == "see there."


TASK = crg.Task(["cat", "dog"], np.eye(2, 4))


@pytest.mark.parametrize("method", ["tda", "dpe"])
def test_every_preset_is_allowed(method: str) -> None:
    """Each preset is for a dataset of the catalogue, with options of the method in their limits."""
    config = crg.get_method(method).Config
    assert {preset.removeprefix("published/") for preset in presets_of(method)} <= set(catalogue())
    assert len(presets_of(method)) >= 11
    for preset in presets_of(method):
        given = {"preset": preset}
        built = build_config(method, config, given)
        assert all(getattr(built, k) == v for k, v in with_preset(method, given).items())


def test_a_preset_sets_what_is_not_given() -> None:
    """Options beside it win, a record holds what it stands for, and an unknown one is refused."""
    plain, tuned = crg.create("tda", TASK), crg.create("tda", TASK, preset="published/dtd")
    assert plain.config.positive_sharpness == 5.0 and tuned.config.positive_sharpness == 3.0
    adapter = crg.create("dpe", TASK, preset="published/dtd", beta=9.0)
    assert (adapter.config.beta, adapter.config.align) == (9.0, 0.2)
    options = typed_options("tda", {"preset": "published/eurosat"})
    assert options == {"positive_weight": 4.0, "positive_sharpness": 8.0}
    check_refused("published/dtd", crg.create, "tda", TASK, preset="published/mnist")
    check_refused("none", crg.create, "crg", TASK, preset="published/dtd")
