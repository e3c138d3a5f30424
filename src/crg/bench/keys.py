"""What a run is known by: all its options, the code of its method, its data and scenario."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import inspect
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import crg.parts
from crg.methods.options import build_config
from crg.methods.registry import get_method
from crg.needs import FEW
from crg.presets import with_preset
from crg.results.provenance import Origin
from crg.streams.scenario import Scenario


def typed_options(method: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """The given options, checked and in the types that the method declares."""
    config = build_config(method, get_method(method).Config, given)
    return {name: getattr(config, name) for name in with_preset(method, given)}


def whole_config(method: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Every option, defaults included."""
    return dataclasses.asdict(build_config(method, get_method(method).Config, options))


def origin_of(
    path: str,
    sha256: str | None,
    method: str,
    plugins: Sequence[str],
    labelled: tuple[str, str | None] | None = None,
) -> Origin:
    """Where a run of ``method`` on a file comes from; ``labelled`` are few-shot images."""
    own = str(Path(path).resolve()), sha256, _code_digest(method), tuple(plugins)
    if labelled is None or FEW not in get_method(method).needs:
        return Origin(*own)  # what a method does not look at is no part of its run
    return Origin(*own, str(Path(labelled[0]).resolve()), labelled[1])


@functools.cache
def _code_digest(method: str) -> str:
    """Digest of the file that defines a method and of the parts that methods are made of.

    Whoever edits either must not be given the old results when the experiment continues.
    """
    try:
        own = inspect.getsourcefile(get_method(method))
    except TypeError:  # made at a prompt
        own = None
    parts = Path(crg.parts.__file__).parent
    files = [*sorted(parts.glob("*.py")), parts.parent / "ops.py"]
    digest = hashlib.sha256()
    for file in [*files, Path(own)] if own else files:
        digest.update(file.read_bytes())
    return digest.hexdigest()[:16]


def unusual(scenario: Scenario) -> dict[str, Any]:
    """The values of a scenario that are not the usual ones."""
    usual = dataclasses.asdict(Scenario())
    return {
        name: value for name, value in dataclasses.asdict(scenario).items() if value != usual[name]
    }
