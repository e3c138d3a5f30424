"""Short lines: results small enough to keep for good, and still checked to the last bit.

A short line has all that is needed to run it again. Of what was measured it has the accuracy,
and a digest of the rest in place of the rest.
"""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path, PurePath
from typing import Any

from crg.atomic import replacing
from crg.results.soundness import DIGEST as DIGEST

# What no two runs have in common, even on the same machine.
NOT_COMPARED = ("ms_per_step", "ms_per_step_median", "peak_bytes")
SHORT = "short"  # kind of a line that reports no run, and only keeps its place
_MEASURED = ("options", "n_samples", "metrics", "zero_shot")
_KEPT = ("schema", "key", "time", "reason", "method", "seed", "given", "scenario",
         "plugins", "code", "versions", "machine")  # fmt: skip


def measured_values(record: Mapping[str, Any]) -> dict[str, Any]:
    """Everything that must be the same when a run is repeated, each under a name of its own."""
    named: dict[str, Any] = {}
    for part in _MEASURED:
        value = record[part]
        if not isinstance(value, Mapping):
            named[part] = value
            continue
        prefix = "" if part == "metrics" else f"{part}: "
        named |= {f"{prefix}{k}": each for k, each in value.items() if k not in NOT_COMPARED}
    return named


def digest_of(record: Mapping[str, Any]) -> str:
    """A digest of everything that must be the same when the run is repeated."""
    text = json.dumps(measured_values(record), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def shortened(record: Mapping[str, Any]) -> dict[str, Any]:
    """A short line for any line of a results file; of paths only the last part is kept."""
    short = {name: record[name] for name in _KEPT if name in record}
    if "metrics" not in record:
        return short | {"kind": SHORT}
    few = record.get("few")
    return short | {
        "data": {**record["data"], "path": _name(record["data"]["path"])},
        "then": [_name(path) for path in record.get("then") or ()],
        "few": None if few is None else {**few, "path": _name(few["path"])},
        "metrics": {"accuracy": record["metrics"].get("accuracy")},
        DIGEST: digest_of(record),
    }


def shorten_file(source: Path, target: Path) -> None:
    """A compressed file with a short line for each line of ``source``, under the same numbers."""
    lines = []
    for line in source.read_bytes().splitlines():
        try:
            lines.append(json.dumps(shortened(json.loads(line)), separators=(",", ":")))
        except (ValueError, KeyError, TypeError, AttributeError):
            lines.append("")  # truncated: the numbers of the others stay
    content = "\n".join([*lines, ""]).encode()
    with replacing(target) as partial:
        # Without a time in it, equal results make equal files.
        partial.write_bytes(gzip.compress(content, mtime=0))


def _name(path: str) -> str:
    return PurePath(path).name
