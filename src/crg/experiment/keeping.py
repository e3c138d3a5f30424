"""Keeping runs: each is added to the results file once, even where two commands write it."""

from __future__ import annotations

import os
from pathlib import Path

from crg import results


class Keeper:
    """Adds lines to a results file that others may be writing, too.

    Two calls of ``crg bench`` at once have the same runs to do. Before a line is written, what
    the file has got since the last one is read, so whoever comes second writes nothing.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path, self._end = Path(path), 0
        self._keys: set[str] = set()

    def add(self, record: results.Record) -> bool:
        """Write the line of a run or of its failure; False if the run is there already."""
        self._catch_up()
        if record["key"] in self._keys:
            return False
        results.append(self._path, record)
        return True

    def _catch_up(self) -> None:
        if not self._path.exists() or self._path.stat().st_size < self._end:  # another file
            self._end, self._keys = 0, set()
        keys, self._end = results.run_keys_from(self._path, self._end)
        self._keys |= keys
