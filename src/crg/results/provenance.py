"""Provenance: where a run came from, on which machine and with which versions it was made.

The processor and the BLAS are written down too: they decide how sums are rounded.
"""

from __future__ import annotations

import datetime
import functools
import hashlib
import importlib.metadata
import json
import os
import platform
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import crg
from crg.results.schema import Data, Failure, Run
from crg.types import Result

_CPUINFO = Path("/proc/cpuinfo")
_NAMES = ("model name", "Model", "cpu model", "Hardware")  # of the model, by architecture


def describe_machine() -> dict[str, Any]:
    """Host, architecture, number and model of the processors, and the BLAS of NumPy."""
    return {
        "host": platform.node(),
        "architecture": platform.machine(),
        "processors": os.cpu_count(),
        "processor": processor_model(),
        "blas": blas(),
    }


@functools.cache
def processor_model() -> str | None:
    """What the processor calls itself, such as "AMD EPYC 7B13"; None where nothing says."""
    model = _model_in(_read(_CPUINFO)) or platform.processor()
    return " ".join(model.replace(",", " ").split()) or None


@functools.cache
def blas() -> str | None:
    """The BLAS of NumPy with its version and the processors that its kernels are made for."""
    from threadpoolctl import threadpool_info

    loaded = [each for each in threadpool_info() if each.get("user_api") == "blas"]
    # Torch and others may bring one of their own.
    own = [each for each in loaded if "numpy" in str(each.get("filepath"))] or loaded[:1]
    if not own:
        return _blas_at_build()
    parts = (own[0].get(name) for name in ("internal_api", "version", "architecture"))
    return " ".join(str(part) for part in parts if part)


def _blas_at_build() -> str | None:
    """What NumPy was built with, where none is loaded, as with Accelerate."""
    known: Any = np.show_config(mode="dicts")
    found = (known or {}).get("Build Dependencies", {}).get("blas", {})
    return " ".join(str(found[part]) for part in ("name", "version") if found.get(part)) or None


def _model_in(cpuinfo: str) -> str:
    facts = dict(reversed([_split(line) for line in cpuinfo.splitlines()]))  # the first counts
    return next((facts[name] for name in _NAMES if facts.get(name)), "")


def _split(line: str) -> tuple[str, str]:
    name, _, value = line.partition(":")
    return name.strip(), value.strip()


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:  # not on Linux
        return ""


@dataclass(frozen=True)
class Origin:
    """Where a run came from: the data, the method's code and the plug-ins it needed."""

    path: str
    sha256: str | None
    code: str = ""  # digest of the file that defines the method
    plugins: tuple[str, ...] = ()
    few: str | None = None  # file or store of labelled images
    few_sha256: str | None = None
    then: tuple[str, ...] = ()  # further files of the stream; ``sha256`` covers them too
    scenario: Mapping[str, Any] = field(default_factory=dict)  # what is not as usual


def run_key(origin: Origin, method: str, options: Mapping[str, Any], seed: int) -> str:
    """A name for a run: equal if and only if data, code, whole configuration and seed are."""
    facts = [origin.sha256, method, dict(options), seed, crg.__version__, origin.code]
    facts += [] if origin.few_sha256 is None else [origin.few_sha256]
    facts += [dict(origin.scenario)] if origin.scenario else []
    text = json.dumps(facts, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def make_run(result: Result, origin: Origin, given: Mapping[str, Any]) -> Run:
    """The full record of a run; ``given`` are the options that differ from the defaults."""
    key = run_key(origin, result.method, result.options, result.seed)
    unusual = origin.scenario or origin.then  # what no option of crg run can say
    repeat = repeat_command(origin, result.method, given, result.seed)
    return Run(
        key=key,
        time=_now(),
        method=result.method,
        options=dict(result.options),
        seed=result.seed,
        metrics=dict(result.metrics),
        zero_shot=dict(result.zero_shot),
        n_samples=result.n_samples,
        seconds=result.seconds,
        data=Data(origin.path, origin.sha256),
        few=None if origin.few is None else Data(origin.few, origin.few_sha256),
        then=origin.then,
        scenario=dict(origin.scenario),
        given=dict(given),
        plugins=origin.plugins,
        code=origin.code,
        **surroundings(),
        command=f"crg rerun {key}" if unusual else repeat,
    )


def failed_run(key: str, reason: str) -> Failure:
    """The record of a run that failed, and why; the same command tries it again."""
    return Failure(key=key, reason=reason, time=_now())


def surroundings() -> dict[str, Any]:
    """Versions and machine of this process, as every record has them."""
    return {"versions": _versions(), "machine": describe_machine()}


def repeat_command(origin: Origin, method: str, given: Mapping[str, Any], seed: int) -> str:
    """The command that repeats one run, quoted for a shell."""
    words = ["crg"]
    for plugin in origin.plugins:
        words += ["--plugin", plugin]
    words += ["run", origin.path, "--method", method]
    for name, value in given.items():
        words += ["-o", f"{name}={str(value).lower() if isinstance(value, bool) else value}"]
    if origin.few is not None:
        words += ["--few", origin.few]
    return shlex.join([*words, "--seed", str(seed)])


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def _versions() -> dict[str, str | None]:
    return {
        "crg": crg.__version__,
        "python": platform.python_version(),
        "array_library": f"numpy {np.__version__}",
        "numpy": np.__version__,
        "numba": _numba(),  # whose kernels round otherwise than plain code
        "platform": platform.platform(),
    }


def _numba() -> str | None:
    """The version of numba, None where its kernels are not used."""
    if os.environ.get("CRG_COMPILED", "1") == "0":
        return None
    try:
        return importlib.metadata.version("numba")
    except importlib.metadata.PackageNotFoundError:
        return None
