"""Tables of a TOML file, read with suspicion: each mistake is one sentence with its place."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from crg.methods.options import nearest
from crg.types import InputError

_KINDS = {
    str: "text in quotes",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    dict: "a table such as { key = value }",
    list: 'a list of names such as ["one", "two"]',
}


def parsed(file: Path, remedy: str, lists: Sequence[str]) -> Mapping[str, Any]:
    """The content of a file; ``remedy`` helps where there is none, ``lists`` are its [[keys]]."""
    try:
        with file.open("rb") as content:
            return tomllib.load(content)
    except FileNotFoundError:
        raise InputError(f"{file} does not exist: {remedy}.") from None
    except OSError as error:
        raise InputError(f"{file} cannot be read ({error.strerror}): check the path.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        twice = [key for key in lists if f"('{key}',) twice" in str(error)]
        mending = f"write [[{twice[0]}]] above each of them" if twice else "mend it there"
        raise InputError(f"{file} is no TOML ({error}): {mending}.") from None


class Table:
    """One table of the file; it remembers what was asked for, so that the rest can be refused."""

    def __init__(self, values: Mapping[str, Any], file: Path, place: str = "") -> None:
        self._values, self._file, self.place = values, file, place
        self._known: list[str] = []

    def text(self, key: str, default: str | None = None, choices: Iterable[str] = ()) -> str:
        """A text; one without a default must be there."""
        found = self._get(key, str, default)
        allowed = tuple(choices)
        if allowed and found not in allowed:
            self.refuse(f"{key} is {found!r}", f"choose one of {', '.join(allowed)}.")
        return str(found)

    def flag(self, key: str, default: bool = False) -> bool:
        """True or false."""
        return bool(self._get(key, bool, default))

    def count(self, key: str, default: int, at_least: int = 1) -> int:
        """A whole number."""
        return int(self._at_least(key, int(self._get(key, int, default)), at_least))

    def optional_count(self, key: str, at_least: int = 1) -> int | None:
        """A whole number, or None where there is none."""
        return self.count(key, at_least, at_least) if self.has(key) else None

    def optional_number(self, key: str) -> float | None:
        """A number, or None where there is none."""
        found = self._get(key, float, None) if self.has(key) else None
        return None if found is None else float(found)

    def texts(self, key: str) -> tuple[str, ...]:
        """A list of texts with at least one."""
        found = self._get(key, list, None)
        if not found or not all(isinstance(each, str) for each in found):
            self.refuse(f"{key} is {found!r}", 'give a list of names such as ["one", "two"].')
        return tuple(found)

    def mapping(self, key: str) -> dict[str, Any]:
        """A table of values that others check; empty where there is none."""
        return dict(self._get(key, dict, {}))

    def tables(self, key: str, kind: str) -> list[Table]:
        """The tables of ``[[key]]``, each with its number as its place."""
        found = self._values[key] if self.has(key) else []
        if isinstance(found, dict):
            self.refuse(f"[{key}] stands for a single table", f"write [[{key}]].")
        if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
            self.refuse(f"{key} is {found!r}", f"write [[{key}]] above each of them.")
        return [
            Table(each, self._file, f"{kind} {number}")
            for number, each in enumerate(found, start=1)
        ]

    def table(self, key: str) -> Table:
        """The table of ``[key]``; an empty one where there is none."""
        return Table(self.mapping(key), self._file, f"[{key}]")

    def has(self, key: str) -> bool:
        """Whether the key is there."""
        self._known.append(key)
        return key in self._values

    def finish(self) -> None:
        """Refuse keys that nobody asked for."""
        for key in self._values:
            if key not in self._known:
                self.refuse(f"there is no key {key!r}", nearest(key, set(self._known)))

    def refuse(self, what: str, remedy: str) -> NoReturn:
        """Tell of a mistake in this table."""
        where = f"{self._file}, {self.place}" if self.place else str(self._file)
        raise InputError(f"{where}: {what}: {remedy}")

    def blame(self, error: InputError) -> NoReturn:
        """Tell of a mistake that another part noticed, with its place."""
        where = f"{self._file}, {self.place}" if self.place else str(self._file)
        raise InputError(f"{where}: {error}") from None

    def _get(self, key: str, kind: type, default: Any) -> Any:
        if not self.has(key):
            if default is None:
                self.refuse(f"{key} is missing", f"give {_KINDS[kind]}.")
            return default
        found = self._values[key]
        if kind is float and type(found) is int:
            found = float(found)
        if type(found) is not kind:
            self.refuse(f"{key} is {found!r}", f"give {_KINDS[kind]}.")
        return found

    def _at_least(self, key: str, value: float, limit: float) -> float:
        if value < limit:
            self.refuse(f"{key} is {value}", f"give a number from {limit} on.")
        return value
