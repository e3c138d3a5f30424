"""Sentences that describe each class, in CuPL's form: {"class name": ["sentence", ...]}.

Names are matched without regard to case, and an underscore is a space.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from crg.types import InputError, parsed_json

Descriptions: TypeAlias = Mapping[str, Sequence[str]] | str | os.PathLike[str]
_SHOWN = 5  # names that an error lists before it says how many more there are


def read_descriptions(path: str | os.PathLike[str]) -> dict[str, list[str]]:
    """The sentences of each class from a JSON file."""
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
        content = parsed_json(text, _without_repeats)
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror}): check the path.") from None
    except ValueError as error:
        reason = str(error).rstrip(".").replace("\n", " ")
        raise InputError(
            f"{path} is not a file of descriptions ({reason}): "
            'write JSON such as {"class name": ["sentence", ...]}.'
        ) from None
    _check_content(content, str(path))
    return {str(name): list(sentences) for name, sentences in content.items()}


def described(
    class_names: Sequence[str],
    descriptions: Descriptions,
    on_note: Callable[[str], None] | None = None,
) -> list[list[str]]:
    """The sentences of each class; missing classes are refused, extra ones are noted."""
    if not isinstance(descriptions, Mapping):
        descriptions = read_descriptions(descriptions)
    else:
        _check_content(descriptions, "The mapping")
    sentences = _by_key(descriptions)
    wanted = {key_of(name): name for name in class_names}
    missing = [name for key, name in wanted.items() if key not in sentences]
    if missing:
        raise InputError(
            f"The descriptions lack {_counted(len(missing))} ({_listed(missing)}): "
            "add them or choose the prompts 'template'."
        )
    extra = [name for name in descriptions if key_of(name) not in wanted]
    if extra and on_note is not None:
        on_note(
            f"The descriptions also name {_counted(len(extra))} that nobody asked for: "
            f"{_listed(extra)}."
        )
    return [list(sentences[key_of(name)]) for name in class_names]


def plain(name: str) -> str:
    """A class name as it stands in a prompt.

    >>> plain("sea_lion")
    'sea lion'
    """
    return " ".join(name.replace("_", " ").split())


def key_of(name: str) -> str:
    """What two spellings of a class name have in common."""
    return plain(name).casefold()


def _by_key(descriptions: Mapping[str, Sequence[str]]) -> dict[str, Sequence[str]]:
    found: dict[str, Sequence[str]] = {}
    for name, sentences in descriptions.items():
        if key_of(name) in found:
            raise InputError(f"The descriptions name {name!r} twice: keep one of the two.")
        found[key_of(name)] = sentences
    return found


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"{twice!r} occurs twice")
    return content


def _check_content(content: Any, where: str) -> None:
    form = 'write {"class name": ["sentence", ...]}.'
    if not isinstance(content, Mapping) or not content:
        raise InputError(f"{where} holds no descriptions: {form}")
    for name, sentences in content.items():
        if isinstance(sentences, str) or not isinstance(sentences, Sequence) or not sentences:
            raise InputError(f"{where} has no list of sentences for {name!r}: {form}")
        if not all(isinstance(each, str) and each.strip() for each in sentences):
            raise InputError(f"{where} has an empty or odd sentence for {name!r}: {form}")


def _counted(number: int) -> str:
    return "1 class" if number == 1 else f"{number} classes"


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
