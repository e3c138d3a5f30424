"""Results on disk: one JSON line per run, with all that is needed to repeat it.

The processor and the BLAS are written down too: they decide how sums are rounded.
"""

from __future__ import annotations

import contextlib
import datetime
import functools
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
from crg.results.soundness import LeftOut, fault_of, is_run
from crg.types import InputError, Result

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


DEFAULT_PATH = "crg-results.jsonl"
SCHEMA = 1
FAILURE = "failure"  # kind of a line that reports a run that failed

_TRUNCATED = "is truncated or not ours"

Record = dict[str, Any]


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


@dataclass(frozen=True)
class Ledger:
    """What a results file holds; ``truncated`` are the numbers of lines that cannot be read.

    ``left_out`` are these and the lines that can be read and not be believed, with the reasons.
    """

    records: tuple[Record, ...]
    truncated: tuple[int, ...] = ()
    numbers: tuple[int, ...] = field(default=(), compare=False)  # line of each record, from 1
    left_out: tuple[LeftOut, ...] = field(default=(), compare=False)

    @property
    def n_lines(self) -> int:
        """How many lines there are, without empty ones at the end."""
        return max((*self.numbers, *(line.number for line in self.left_out)), default=0)


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
    return {"versions": _versions(), "machine": describe_machine()}


def make_failure(key: str, reason: str) -> Record:
    """A run that failed, and why; a rerun tries it again."""
    return {"schema": SCHEMA, "kind": FAILURE, "key": key, "time": _now(), "reason": reason}


def to_result(record: Mapping[str, Any]) -> Result:
    """The run that a record reports."""
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


def check_writable(path: str | os.PathLike[str], or_none: bool = False) -> None:
    """Refuse a results file that cannot be appended to, before any time is spent on runs.

    A file that holds something else, such as a feature file named by mistake, is left alone.
    ``or_none``: the command also runs without one, which the refusal names.
    """
    with contextlib.suppress(OSError), Path(path).open("rb") as file:
        if file.read(1) not in (b"", b"{"):
            raise InputError(
                f"{path} is no results file: choose another with --results, which may be new."
            )
    _append_bytes(Path(path), b"", " or none with --no-results" if or_none else "")


def make_folder(path: str | os.PathLike[str]) -> None:
    """Make the folder that a results file is in."""
    try:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _unwritable(path, error) from None


def append(path: str | os.PathLike[str], record: Mapping[str, Any]) -> None:
    """Add one line in a single write, so that writers side by side never mix their lines."""
    line = json.dumps(record, allow_nan=False, separators=(",", ":")).encode() + b"\n"
    target = Path(path)
    _append_bytes(target, line if _ends_cleanly(target) else b"\n" + line)


def read_ledger(path: str | os.PathLike[str]) -> Ledger:
    """All records that can be believed; what cannot is named with its reason, and not fatal."""
    try:
        lines = _content(Path(path)).split(b"\n")
    except FileNotFoundError:
        return Ledger(())
    except (gzip.BadGzipFile, EOFError, zlib.error):
        raise InputError(f"{path} is damaged: restore it from a copy.") from None
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror}): check the path.") from None
    records: dict[int, Record] = {}
    left_out: list[LeftOut] = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        record, why = _parsed(line)
        if why is not None:
            left_out.append(LeftOut(number, why, record))
        elif record is not None:
            records[number] = record
    truncated = tuple(line.number for line in left_out if line.record is None)
    return Ledger(tuple(records.values()), truncated, tuple(records), tuple(left_out))


def run_keys_from(path: str | os.PathLike[str], start: int) -> tuple[set[str], int]:
    """Keys of the runs in the whole lines from a byte of a file on, and where these lines end."""
    try:
        with Path(path).open("rb") as file:
            file.seek(start)
            content = file.read()
    except OSError:  # no file yet; what else is wrong the write will tell
        return set(), start
    whole = content[: content.rfind(b"\n") + 1]
    found = (_parsed(line) for line in whole.splitlines())
    runs = [record for record, why in found if record is not None and why is None]
    return {record["key"] for record in runs if is_run(record)}, start + len(whole)


def _content(path: Path) -> bytes:
    content = path.read_bytes()
    return gzip.decompress(content) if path.suffix == ".gz" else content


def find(records: Iterable[Record], keys: Sequence[str]) -> dict[str, Record]:
    """The latest run of each of the ``keys`` that there is one for; failures are none."""
    wanted = set(keys)
    return {each["key"]: each for each in records if each["key"] in wanted and is_run(each)}


def _parsed(line: bytes) -> tuple[Record | None, str | None]:
    """What a line tells, and why it is left out; without a record nothing can be made of it."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None, _TRUNCATED
    if not isinstance(record, dict) or "schema" not in record:
        return None, _TRUNCATED
    if record["schema"] != SCHEMA:
        return None, f"is of the schema {record['schema']!r}, which this crg does not read"
    if not isinstance(record.get("key"), str):
        return None, _TRUNCATED
    return record, fault_of(record)


def _append_bytes(path: Path, data: bytes, otherwise: str = "") -> None:
    try:
        handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
        try:
            written = os.write(handle, data)
            os.fsync(handle)
        finally:
            os.close(handle)
    except OSError as error:
        raise _unwritable(path, error, otherwise) from None
    if written != len(data):
        raise InputError(f"Results were written to {path} in part only: make room on the disk.")


def _unwritable(path: str | os.PathLike[str], error: OSError, otherwise: str = "") -> InputError:
    return InputError(
        f"Results cannot be written to {path} ({error.strerror}): "
        f"choose another file with --results{otherwise}."
    )


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
