"""What tells one machine from another: its processor, and the BLAS that multiplies matrices.

Both decide how sums are rounded, so whoever repeats a run wants to know them.
"""

from __future__ import annotations

import functools
import os
import platform
from pathlib import Path
from typing import Any

import numpy as np

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
    """What the processor calls itself, such as "AMD EPYC 7B13"; None where nobody tells."""
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
    """What NumPy was built with, where it is not seen at work, as with Accelerate."""
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
