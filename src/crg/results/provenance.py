"""Provenance: the code, machine and versions behind a result, and the key of a run.

The processor and the BLAS are recorded too: they decide how sums are rounded.
"""

from __future__ import annotations

import contextlib
import datetime
import functools
import hashlib
import importlib.metadata
import json
import os
import platform
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from msgspec.structs import replace

import crg
from crg.results.schema import Failure, Result, RunSpec

_CPUINFO = Path("/proc/cpuinfo")
_NAMES = ("model name", "Model", "cpu model", "Hardware")  # of the model, by architecture


@functools.cache
def processor_model() -> str | None:
    """The model name of the processor, such as "AMD EPYC 7B13"; None if it is not known."""
    text = _CPUINFO.read_text("utf-8", errors="replace") if _CPUINFO.exists() else ""  # Linux
    found = (re.search(rf"^{name}\s*:(.*)$", text, re.M) for name in _NAMES)
    model = next((each[1] for each in found if each and each[1].strip()), platform.processor())
    return " ".join(model.replace(",", " ").split()) or None


@functools.cache
def blas() -> str | None:
    """The BLAS of NumPy with its version and the processors that its kernels are made for."""
    from threadpoolctl import threadpool_info

    loaded = [each for each in threadpool_info() if each.get("user_api") == "blas"]
    # Torch and others may load another one.
    own = [each for each in loaded if "numpy" in str(each.get("filepath"))] or loaded[:1]
    if not own:
        # The one that NumPy was built with, for those that threadpoolctl does not see.
        known: Any = np.show_config(mode="dicts")
        own = [(known or {}).get("Build Dependencies", {}).get("blas", {})]
    names = ("name", "internal_api", "version", "architecture")
    return " ".join(str(own[0][name]) for name in names if own[0].get(name)) or None


def run_key(spec: RunSpec, options: Mapping[str, Any]) -> str:
    """A name for a run: equal if and only if data, code, seed and all ``options`` are."""
    facts = [spec.data.sha256, spec.method, dict(options), spec.seed, crg.__version__, spec.code]
    facts += [] if spec.few is None else [spec.few.sha256]
    scenario = msgspec.to_builtins(spec.scenario)  # without defaults
    facts += [scenario] if scenario else []
    text = json.dumps(facts, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def make_run(result: Result, spec: RunSpec) -> Result:
    """The result as a line: with its spec, key, time, versions and machine."""
    facts = {name: getattr(spec, name) for name in RunSpec.__struct_fields__}
    facts["key"] = spec.key or run_key(spec, result.options)
    return replace(result, **facts, time=_now(), **surroundings())


def failed_run(key: str, reason: str, trace: str = "") -> Failure:
    """The line of a run that failed, and why; the same command tries it again."""
    return Failure(key=key, reason=reason, trace=trace, time=_now())


def surroundings() -> dict[str, Any]:
    """Versions and machine of this process, as every record has them."""
    numba = None  # where its kernels, which round differently, are not used
    if os.environ.get("CRG_COMPILED", "1") != "0":
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            numba = importlib.metadata.version("numba")
    versions = {
        "crg": crg.__version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "numba": numba,
        "platform": platform.platform(),
    }
    machine = {
        "host": platform.node(),
        "architecture": platform.machine(),
        "processors": os.cpu_count(),
        "processor": processor_model(),
        "blas": blas(),
    }
    return {"versions": versions, "machine": machine}


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
