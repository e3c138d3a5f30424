"""Results on disk: one JSON line per run, with all that is needed to repeat it."""

from __future__ import annotations

import contextlib
import datetime
import gzip
import hashlib
import importlib.metadata
import json
import os
import platform
import shlex
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import crg
from crg.types import InputError, Result

DEFAULT_PATH = "crg-results.jsonl"
SCHEMA = 1
FAILURE = "failure"  # kind of a line that tells of a run that came to nothing

Record = dict[str, Any]


@dataclass(frozen=True)
class Origin:
    """Where a run came from: the data, the method's code and the plug-ins it needed."""

    path: str
    sha256: str | None
    code: str = ""  # digest of the file that defines the method
    plugins: tuple[str, ...] = ()
    few: str | None = None  # file or store of labelled pictures
    few_sha256: str | None = None
    then: tuple[str, ...] = ()  # further files of the stream; ``sha256`` covers them too
    scenario: Mapping[str, Any] = field(default_factory=dict)  # what is not as usual


@dataclass(frozen=True)
class Ledger:
    """What a results file holds; ``torn`` are the numbers of lines that cannot be read."""

    records: tuple[Record, ...]
    torn: tuple[int, ...] = ()
    numbers: tuple[int, ...] = field(default=(), compare=False)  # line of each record, from 1


def run_key(origin: Origin, method: str, options: Mapping[str, Any], seed: int) -> str:
    """A name for a run: equal if and only if data, code, whole configuration and seed are."""
    facts = [origin.sha256, method, dict(options), seed, crg.__version__, origin.code]
    facts += [] if origin.few_sha256 is None else [origin.few_sha256]
    facts += [dict(origin.scenario)] if origin.scenario else []
    text = json.dumps(facts, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def make_record(result: Result, origin: Origin, given: Mapping[str, Any]) -> Record:
    """One run as plain values; ``given`` are the options that differ from the defaults."""
    key = run_key(origin, result.method, result.options, result.seed)
    return {
        "schema": SCHEMA,
        "key": key,
        "time": _now(),
        **asdict(result),
        "data": {"path": origin.path, "sha256": origin.sha256},
        "few": None if origin.few is None else {"path": origin.few, "sha256": origin.few_sha256},
        "then": list(origin.then),
        "scenario": dict(origin.scenario),
        "given": dict(given),
        "plugins": list(origin.plugins),
        "code": origin.code,
        **surroundings(),
        "command": repeat_command(origin, result.method, given, result.seed)
        if not origin.scenario and not origin.then
        else f"crg rerun {key}",  # what no option of crg run can say
    }


def surroundings() -> Record:
    """Versions and machine of this process, as every record has them."""
    return {"versions": _versions(), "machine": _machine()}


def make_failure(key: str, reason: str) -> Record:
    """A run that came to nothing, and why; a rerun tries it again."""
    return {"schema": SCHEMA, "kind": FAILURE, "key": key, "time": _now(), "reason": reason}


def to_result(record: Mapping[str, Any]) -> Result:
    """The run that a record tells of."""
    names = ("method", "options", "seed", "metrics", "zero_shot", "n_samples", "seconds")
    return Result(**{name: record[name] for name in names})


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


def check_writable(path: str | os.PathLike[str]) -> None:
    """Refuse a results file that cannot be appended to, before any time is spent on runs.

    A file that holds something else, such as a feature file named by mistake, is left alone.
    """
    with contextlib.suppress(OSError), Path(path).open("rb") as file:
        if file.read(1) not in (b"", b"{"):
            raise InputError(
                f"{path} is no results file: choose another with --results, which may be new."
            )
    _append_bytes(Path(path), b"")


def append(path: str | os.PathLike[str], record: Mapping[str, Any]) -> None:
    """Add one line in a single write, so that writers side by side never mix their lines."""
    line = json.dumps(record, allow_nan=False, separators=(",", ":")).encode() + b"\n"
    target = Path(path)
    _append_bytes(target, line if _ends_cleanly(target) else b"\n" + line)


def read_ledger(path: str | os.PathLike[str]) -> Ledger:
    """All whole records; a line that was cut off by a crash is named, not fatal."""
    try:
        lines = _content(Path(path)).split(b"\n")
    except FileNotFoundError:
        return Ledger(())
    except (gzip.BadGzipFile, EOFError, zlib.error):
        raise InputError(f"{path} is damaged: restore it from a copy.") from None
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror}): check the path.") from None
    records: list[Record] = []
    numbers: list[int] = []
    torn: list[int] = []
    for number, line in enumerate(lines, start=1):
        record = _parsed(line)
        if record is not None:
            records.append(record)
            numbers.append(number)
        elif line.strip():
            torn.append(number)
    return Ledger(tuple(records), tuple(torn), tuple(numbers))


def _content(path: Path) -> bytes:
    content = path.read_bytes()
    return gzip.decompress(content) if path.suffix == ".gz" else content


def find(records: Iterable[Record], keys: Sequence[str]) -> dict[str, Record]:
    """The latest run of each of the ``keys`` that there is one for; failures are none."""
    wanted = set(keys)
    runs = (record for record in records if record.get("kind") != FAILURE)
    return {record["key"]: record for record in runs if record["key"] in wanted}


def _parsed(line: bytes) -> Record | None:
    try:
        record = json.loads(line)
    except ValueError:
        return None
    whole = isinstance(record, dict) and record.get("schema") == SCHEMA and "key" in record
    return record if whole else None


def _append_bytes(path: Path, data: bytes) -> None:
    try:
        handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
        try:
            written = os.write(handle, data)
            os.fsync(handle)
        finally:
            os.close(handle)
    except OSError as error:
        raise InputError(
            f"Results cannot be written to {path} ({error.strerror}): "
            "choose another file with --results or none with --no-results."
        ) from None
    if written != len(data):
        raise InputError(f"Results were written to {path} in part only: make room on the disk.")


def _ends_cleanly(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            if file.seek(0, os.SEEK_END) == 0:
                return True
            file.seek(-1, os.SEEK_END)
            return file.read(1) == b"\n"
    except OSError:
        return True  # no file yet; what else is wrong the write will tell


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


def _machine() -> dict[str, Any]:
    return {
        "host": platform.node(),
        "architecture": platform.machine(),
        "processors": os.cpu_count(),
    }
