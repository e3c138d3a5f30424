"""The journal of a store in the making: which blocks are on disk, whatever happens next.

Each line is ``CHECKSUM JSON``. A line that was torn by a crash, or changed since, does not
count; neither does a block whose numbers no longer have the checksum that its line tells.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from crg.storage import checksum

NAME = "journal.jsonl"
BINARY: int = getattr(os, "O_BINARY", 0)  # Windows would turn each line break into two bytes


@dataclass(frozen=True)
class Entry:
    """One block that is on disk."""

    block: int
    sha256: str  # of its numbers
    content: str  # hash of all that they were made of
    skipped: Mapping[str, str]  # row -> why it was left out; JSON has no other keys than texts


def read_entries(folder: Path) -> dict[int, Entry]:
    """The last whole entry of each block."""
    try:
        lines = (folder / NAME).read_bytes().split(b"\n")
    except FileNotFoundError:
        return {}
    entries = [_parsed(line) for line in lines]
    return {entry.block: entry for entry in entries if entry is not None}


def append_entry(folder: Path, entry: Entry) -> None:
    """Add one line; when this returns it is on disk."""
    text = json.dumps(asdict(entry), sort_keys=True).encode()
    handle = os.open(folder / NAME, os.O_RDWR | os.O_APPEND | os.O_CREAT | BINARY, 0o666)
    try:
        # The line break comes first as well, lest a torn line spoils this one.
        write_all(handle, b"\n" + checksum(text).encode() + b" " + text + b"\n")
        os.fsync(handle)
    finally:
        os.close(handle)


def write_all(handle: int, data: bytes | memoryview) -> None:
    """``os.write`` until nothing is left; a full disk raises instead of writing a part."""
    left = memoryview(data)
    while left:
        left = left[os.write(handle, left) :]


def _parsed(line: bytes) -> Entry | None:
    digest, _, text = line.partition(b" ")
    if checksum(text).encode() != digest:
        return None
    return Entry(**json.loads(text))
