"""State that can be saved: every part and method is a tree of arrays and plain values.

What an object keeps between steps are its attributes, so saving walks them. An
attribute named in ``_not_saved`` is configuration or scratch, rebuilt by the constructor.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import array_api_compat

from crg.types import Array, InputError, like


class Stateful:
    """Attributes in, flat dictionary out, and back."""

    _not_saved: ClassVar[frozenset[str]] = frozenset()

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
                value.restore(_below(name, state))
            elif array_api_compat.is_array_api_obj(value):
                setattr(self, name, _fitted(name, state[name], value))
            else:
                setattr(self, name, state[name])

    def add_class(self, text: Array) -> None:
        """Make room for one more class whose text feature is ``text`` (D,)."""
        for part in self._parts():
            part.add_class(text)

    def remove_class(self, index: int) -> None:
        """Forget the class at ``index``."""
        for part in self._parts():
            part.remove_class(index)

    def _parts(self) -> list[Stateful]:
        return [value for _, value in self._saved() if isinstance(value, Stateful)]

    def _saved(self) -> list[tuple[str, Any]]:
        return [(name, value) for name, value in vars(self).items() if name not in self._not_saved]


def _below(prefix: str, state: Mapping[str, Any]) -> dict[str, Any]:
    cut = len(prefix) + 1
    return {key[cut:]: value for key, value in state.items() if key.startswith(prefix + ".")}


def _fitted(name: str, saved: Array, current: Array) -> Array:
    if tuple(saved.shape) != tuple(current.shape):
        raise InputError(
            f"The saved state does not fit this task ({name!r} has shape {tuple(saved.shape)}, "
            f"not {tuple(current.shape)}): the file is damaged or was edited."
        )
    return like(saved, current)
