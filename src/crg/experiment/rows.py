"""Rows of an experiment on one source: their options there, or why they are not run."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from crg.datasets.catalog import TRAIN, find_entry, get_entry
from crg.equipment import equipped
from crg.evaluate import BASELINE
from crg.experiment.data import Prospect
from crg.experiment.design import RowRequest, SettingRequest
from crg.features import Features
from crg.grid import typed_options
from crg.methods.options import build_config
from crg.methods.registry import get_method
from crg.outline import LABELLED_IMAGES, Row
from crg.presets import PRESET, PUBLISHED, presets_of
from crg.resources import FEW, GENERATED, TEXT_ENCODER, check_needs
from crg.types import InputError

SEED = "seed"  # the option of methods that train
# In these the seed decides which images come, and not only when.
SEEDED_CHOICE = ("imbalanced", "few_present", "outsiders")
_NEEDS = {
    FEW: LABELLED_IMAGES,
    TEXT_ENCODER: "a text encoder",
    GENERATED: "generated views",
}


def as_row(request: RowRequest) -> Row:
    """The row as tables show it."""
    kind = get_method(request.method)
    needs = kind.needs_with(build_config(request.method, kind.Config, request.options))
    options: dict[str, Any] = typed_options(request.method, request.options)
    options |= {PRESET: PUBLISHED.rstrip("/")} if request.published else {}
    options |= {f"on {name}": dict(given) for name, given in request.per_dataset.items()}
    return Row(
        label=request.label,
        method=request.method,
        options=options,
        tuned=request.tuned,
        needs=tuple(_NEEDS.get(need, need) for need in needs),
        about=request.about,
        x=request.x,
        series=request.series,
        against=request.against,
    )


def options_on(request: RowRequest, dataset: str) -> dict[str, Any] | None:
    """The options of a row on a dataset, spelled out; None where it has no preset there."""
    entry = find_entry(dataset)
    name = entry.name if entry else dataset
    own = {**request.options, **request.per_dataset.get(name, {})}
    if not request.published:
        return typed_options(request.method, own)
    preset = f"{PUBLISHED}{name}"
    if preset not in presets_of(request.method):
        return None
    return typed_options(request.method, {PRESET: preset, **own})


def trains_with_seed(request: RowRequest) -> bool:
    """Whether the method has a seed among its options that the row leaves open."""
    fields = dataclasses.fields(get_method(request.method).Config)
    given = {*request.options, *(name for own in request.per_dataset.values() for name in own)}
    return SEED in {field.name for field in fields} - given


def whole_config(method: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Every option, defaults included."""
    return dataclasses.asdict(build_config(method, get_method(method).Config, options))


def why_not(request: RowRequest, prospect: Prospect, features: Features) -> str | None:
    """One sentence that tells why a row is not run on these images; None if it is."""
    dataset = prospect.dataset
    if features.labels is None:
        return _no_labels(prospect)
    if request.several_views and _own_views(features) == 1:
        return f"{dataset} has one view per image: encode it with --views."
    options = options_on(request, dataset)
    if options is None:
        return f"There is no published preset of {request.method} for {dataset}."
    try:
        kind = get_method(request.method)
        needs = kind.needs_with(build_config(request.method, kind.Config, options))
        if FEW in needs and features.few_features is None:
            return _no_labelled_images(request.method, prospect)
        check_needs(request.method, needs, equipped(features.task, needs, features.model))
    except InputError as error:
        return str(error)
    return _too_few(options, dataset, features) if FEW in needs else None


def seeds_of(request: RowRequest, setting: SettingRequest, seeds: tuple[int, ...]) -> range:
    """How many of the seeds a row runs with: one where no image remembers those before.

    Zero-shot forgets too, but is cheap, and all are compared with it order by order. Where the
    method trains with a seed of its own, that follows the order's, and luck in training shows.
    """
    forgets = getattr(get_method(request.method), "forgets", False)
    once = forgets and request.method != BASELINE and not trains_with_seed(request)
    once = once and setting.scenario.order not in SEEDED_CHOICE
    return range(min(1, len(seeds)) if once else len(seeds))


def _no_labels(prospect: Prospect) -> str:
    is_store = prospect.paths[0].is_dir()
    remedy = "encode images whose classes are known" if is_store else "store labels in it"
    return f"{prospect.dataset} has no labels: {remedy}."


def _no_labelled_images(method: str, prospect: Prospect) -> str:
    """What is said where a source has none, and what would bring them."""
    dataset, needs = prospect.dataset, f"Method {method!r} needs labelled images"
    if prospect.shapes:
        return f"{needs}: ask for shots beside the shapes in [[data]]."
    if prospect.model is None and not prospect.paths[0].is_dir():
        return f"{needs}: store few_features and few_labels in {prospect.paths[0]}."
    if prospect.model is None or TRAIN not in get_entry(dataset).splits:
        return (
            f"{needs} but {dataset} has none to train with: "
            "give a feature file with few_features and few_labels."
        )
    return (
        f"{needs}: run crg encode {dataset} --split train --shots 16 --views 1 "
        f"--model {prospect.model} --root FOLDER --out STORE and name STORE with --data."
    )


def _too_few(options: Mapping[str, Any], dataset: str, features: Features) -> str | None:
    """Where a row asks for more labelled images than any class has, it would be another row."""
    assert features.few_labels is not None
    most = int(np.bincount(features.few_labels).max(initial=0))
    if options.get("shots", 0) <= most:
        return None
    return f"{dataset} has at most {most} labelled images per class: encode more of them."


def _own_views(features: Features) -> int:
    return features.n_views - (features.generated or 0)
