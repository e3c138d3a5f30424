"""What every error for people looks like."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from crg import InputError


@contextlib.contextmanager
def refused_in_one_sentence(*words: str) -> Iterator[None]:
    """The block raises InputError with one sentence that names a remedy and holds ``words``."""
    with pytest.raises(InputError) as caught:
        yield
    sentence = str(caught.value)
    check_sentence(sentence)
    assert not re.search(r"[a-z)]\. [A-Z]", sentence), f"more than one sentence: {sentence}"
    for word in words:
        assert word in sentence, f"{word!r} is not in: {sentence}"


def check_refused(
    words: str | tuple[str, ...], work: Callable[..., object], *given: Any, **options: Any
) -> None:
    """Calling ``work`` is refused in one sentence that names a remedy and holds ``words``."""
    with refused_in_one_sentence(*([words] if isinstance(words, str) else words)):
        work(*given, **options)


def check_sentence(sentence: str) -> None:
    """It is one line with an end and a remedy."""
    assert "\n" not in sentence, sentence
    assert sentence.endswith((".", "?")), sentence
    assert ": " in sentence or "," in sentence, f"no remedy: {sentence}"
