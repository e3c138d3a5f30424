"""State that can be saved: every part and method is a tree of arrays and plain values.

What an object keeps between steps are its attributes, so saving walks them. An
attribute named in ``_not_saved`` is configuration or scratch, rebuilt by the constructor.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar

import array_api_compat

from crg.types import Array, InputError, like, namespace

_LARGEST = 1e12  # of a number in an array: three of them multiplied still fit float32


class Stateful:
    """Attributes in, flat dictionary out, and back."""

    _not_saved: ClassVar[frozenset[str]] = frozenset()
    _rows: ClassVar[tuple[str, ...]] = ()  # arrays with one row per class
    _text_rows: ClassVar[tuple[str, ...]] = ()  # likewise, where the row of a new class is its text
    _columns: ClassVar[tuple[str, ...]] = ()  # arrays whose last axis is one of classes

    def state(self) -> dict[str, Any]:
        """Everything that the next step depends on, under dotted names."""
        flat: dict[str, Any] = {}
        for name, value in self._saved():
            if isinstance(value, Stateful):
                flat |= {f"{name}.{key}": inner for key, inner in value.state().items()}
            else:
                flat[name] = value
        return flat

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take over a state that an object of the same kind and size gave."""
        expected = self.state()
        if set(expected) != set(state):
            odd = sorted(set(expected) ^ set(state))[0]
            raise InputError(
                f"The saved state does not fit this method ({odd!r} differs): "
                "load it with the version of crg that wrote it."
            )
        for name, value in list(self._saved()):
            if isinstance(value, Stateful):
                below = {key: saved for key, saved in state.items() if key.startswith(f"{name}.")}
                value.restore({key[len(name) + 1 :]: saved for key, saved in below.items()})
            elif array_api_compat.is_array_api_obj(value):
                setattr(self, name, _fitted(name, state[name], value))
            else:
                setattr(self, name, _plain(name, state[name], value))
        if not self._is_sound():
            raise _unfit(type(self).__name__.lower())

    def _is_sound(self) -> bool:
        """Whether restored values fit each other; override where one counts or points at others."""
        return True

    def add_class(self, text: Array) -> None:
        """Make room for one more class with the text feature ``text`` (D,): zeros, or the text."""
        for name in (*self._rows, *self._text_rows):
            rows = getattr(self, name)
            xp = namespace(rows)
            row = text[None, :] if name in self._text_rows else xp.zeros_like(rows[:1, ...])
            setattr(self, name, xp.concat([rows, xp.astype(row, rows.dtype)], axis=0))
        for name in self._columns:
            columns = getattr(self, name)
            xp = namespace(columns)
            column = xp.zeros_like(columns[..., :1])
            setattr(self, name, xp.concat([columns, column], axis=-1))
        for part in self._parts():
            part.add_class(text)

    def remove_class(self, index: int) -> None:
        """Forget the class at ``index``."""
        for name in (*self._rows, *self._text_rows):
            setattr(self, name, without(getattr(self, name), index))
        for name in self._columns:
            setattr(self, name, without(getattr(self, name), index, axis=-1))
        for part in self._parts():
            part.remove_class(index)

    def _parts(self) -> list[Stateful]:
        return [value for _, value in self._saved() if isinstance(value, Stateful)]

    def _saved(self) -> list[tuple[str, Any]]:
        return [(name, value) for name, value in vars(self).items() if name not in self._not_saved]


def without(rows: Array, index: int, axis: int = 0) -> Array:
    """A copy of ``rows`` (K, ...), or of (..., K) for axis -1, that lacks the one at ``index``."""
    before, after = slice(index), slice(index + 1, None)
    parts = [rows[(each, ...) if axis == 0 else (..., each)] for each in (before, after)]
    return namespace(rows).concat(parts, axis=axis)


def _fitted(name: str, saved: Any, current: Array) -> Array:
    if (
        not array_api_compat.is_array_api_obj(saved)
        or saved.shape != tuple(current.shape)
        or saved.dtype.name != str(current.dtype).removeprefix("torch.")
        or not _is_in_range(saved, current)
    ):
        raise _unfit(name)
    return like(saved, current)


def _is_in_range(saved: Array, current: Array) -> bool:
    """Whether no number is NaN or too large; infinity stands only where a new array has it too."""
    xp = namespace(saved)
    fits = xp.abs(saved) <= _LARGEST
    if bool(namespace(current).any(current == math.inf)):
        fits = fits | (saved == math.inf)
    return bool(xp.all(fits))


def _plain(name: str, saved: Any, current: Any) -> Any:
    """A plain value of the kind that is there; numbers that count are not below zero."""
    kind = type(current)
    if current is None:
        fits = saved is None or type(saved) in (str, bool, int, list)
    elif kind in (str, bool):
        fits = type(saved) is kind
    elif kind is int:
        fits = type(saved) is int and 0 <= saved < 2**63
    elif kind is float:
        fits = type(saved) in (int, float) and abs(saved) < 1e18  # NaN and infinity fail too
    else:
        fits = type(saved) is list and all(map(_is_plain, saved))
    if not fits:
        raise _unfit(name)
    return saved


def _is_plain(value: Any) -> bool:
    """An id, nothing, or a list of these and of numbers."""
    if isinstance(value, list):
        return all(each is None or type(each) in (str, int, float) for each in value)
    return value is None or type(value) in (str, int)


def _unfit(name: str) -> InputError:
    return InputError(
        f"The saved state does not fit this task ({name!r} is wrong): "
        "the file is damaged or was edited, so restore it from a copy or start over."
    )
