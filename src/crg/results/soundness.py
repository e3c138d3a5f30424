"""Soundness: whether a line of a results file has what it needs and agrees with itself.

Results files are text, which people copy, cut and edit. A line that lacks something, or whose
accuracy is not that of its own answers, is left out with a sentence and stops nothing.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

DIGEST = "digest"  # what a short line has in place of most that was measured
_AGAIN = "run it again with crg bench"
_Parts: TypeAlias = Mapping[str, type | tuple[type, ...]]
_SHORT_RUN: _Parts = {"method": str, "seed": int, "given": dict, "data": dict, "metrics": dict}
_WHOLE_RUN: _Parts = {
    **_SHORT_RUN,
    **{"options": dict, "zero_shot": dict, "n_samples": int, "seconds": (int, float)},
}
_IF_THERE: _Parts = {"time": str, "versions": dict, "machine": dict}  # older lines may lack some
_PARTS_OF: Mapping[str, _Parts] = {
    "failure": {"reason": str},
    "experiment": {"experiment": dict},
    "gallery": {"experiment": str, "source": str, "images": list},
}
_IMAGE = {"id", "png", "truth", "answers"}  # of a gallery
_NUMBERS = ("accuracy", "worst_class_accuracy", "ece", "nll", "purity",
            "ms_per_step_median", "peak_bytes")  # fmt: skip
_COLUMNS = {"reliability": 3, "purity_over_time": 2}
_MISFILED = ("insertions", "mislabelled")
_SLACK = 1e-9  # of an accuracy that somebody rounded in writing


@dataclass(frozen=True)
class LeftOut:
    """A line that is not believed; ``why`` continues from "it" or "each"."""

    number: int
    why: str
    record: Mapping[str, Any] | None = None  # None where not even that can be read


def sentences_on(path: str | os.PathLike[str], lines: Iterable[LeftOut]) -> list[str]:
    """What to tell people of the lines that were left out, a sentence per reason.

    >>> sentences_on("a.jsonl", [LeftOut(2, "is truncated"), LeftOut(5, "is truncated")])
    ['Lines 2, 5 of a.jsonl were left out: each is truncated.']
    """
    numbers: dict[str, list[int]] = {}
    for line in lines:
        numbers.setdefault(line.why, []).append(line.number)
    return [
        f"Line {found[0]} of {path} was left out: it {why}."
        if len(found) == 1
        else f"Lines {', '.join(map(str, found))} of {path} were left out: each {why}."
        for why, found in numbers.items()
    ]


def is_run(record: Mapping[str, Any]) -> bool:
    """Whether it reports a run, and of all that was measured: a short line does not."""
    return record.get("kind") is None and DIGEST not in record


def fault_of(record: Mapping[str, Any]) -> str | None:
    """Why a line cannot be believed, None where it can; lines of unknown kinds always can."""
    fault = lacking(record)
    if fault is not None or not is_run(record):
        return fault
    for part in ("metrics", "zero_shot"):
        fault = _fault_in(record[part], record["n_samples"])
        if fault is not None:
            return f"{fault}, so {_AGAIN}"
    return None


def lacking(record: Mapping[str, Any]) -> str | None:
    """The first part that a line needs and does not have in a usable form, as a reason."""
    kind = record.get("kind")
    if kind is None:
        parts = _SHORT_RUN if DIGEST in record else _WHOLE_RUN
    elif isinstance(kind, str):
        parts = _PARTS_OF.get(kind, {})
    else:
        return f"is of the kind {kind!r}, which there is not"
    needed = {**parts, **{name: kind for name, kind in _IF_THERE.items() if name in record}}
    bad = [name for name, wanted in needed.items() if not isinstance(record.get(name), wanted)]
    bad = bad or [name for name in parts if not _is_filled(name, record[name])]
    if not bad:
        return None
    what = f"has no usable {bad[0]!r}" if bad[0] in record else f"lacks {bad[0]!r}"
    return f"{what}, so {_AGAIN}"


def _is_filled(name: str, part: Any) -> bool:
    """Whether a part of the right type also holds what it must."""
    if name == "data":
        return isinstance(part.get("path"), str)
    if name == "images":
        return all(isinstance(each, dict) and each.keys() >= _IMAGE for each in part)
    return True


def _fault_in(measured: Mapping[str, Any], n_samples: int) -> str | None:
    """What is wrong with figures that belong together."""
    for name in _NUMBERS:
        value = measured.get(name)
        if value is not None and not _is_number(value):
            return f"has {value!r} for {name!r}"
    for name, width in _COLUMNS.items():
        if not _is_table(measured.get(name) or [], width):
            return f"has no usable {name!r}"
    told = measured.get("mislabelled") or {"insertions": 0, "mislabelled": 0}
    if not isinstance(told, dict) or not all(_is_number(told.get(name)) for name in _MISFILED):
        return "has no usable 'mislabelled'"
    n_scored = measured.get("n_scored", n_samples)
    if "right_in_order" in measured and "n_scored" not in measured:
        return "lacks 'n_scored'"
    if not isinstance(n_scored, int) or n_scored < 0:
        return f"has {n_scored!r} for 'n_scored'"
    return _contradiction(measured, n_scored)


def _contradiction(measured: Mapping[str, Any], n_scored: int) -> str | None:
    """Where the accuracy or the count of images is not that of the answers themselves."""
    counts: dict[str, int] = {}
    for name in ("streamed", "correct", "right_in_order"):
        if name in measured:
            count = _count(measured[name])
            if count is None:
                return f"has no usable {name!r}"
            counts[name] = count
    if counts.pop("streamed", n_scored) != n_scored:
        return f"counts {n_scored} scored images and names others"
    if "right_in_order" in counts and 4 * len(measured["right_in_order"]) < n_scored:
        return f"has answers to fewer than its {n_scored} images"
    accuracy = measured.get("accuracy")
    if accuracy is None:
        return None
    for right in counts.values():
        if abs(accuracy * n_scored - right) > _SLACK * n_scored:
            told = f"gives an accuracy of {100 * accuracy:.2f}%"
            return f"{told} where {right} of {n_scored} answers were right"
    return None


def _count(text: Any) -> int | None:
    """How many bits are set in hexadecimal text; None if it is none."""
    try:
        return int.from_bytes(bytes.fromhex(text), "big").bit_count()
    except (TypeError, ValueError):
        return None


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def _is_table(rows: Any, width: int) -> bool:
    return isinstance(rows, list) and all(
        isinstance(row, list)
        and len(row) == width
        and all(cell is None or _is_number(cell) for cell in row)
        for row in rows
    )
