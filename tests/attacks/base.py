"""What an attack is, how one case of it is judged, and how bytes and values are bent.

A family is a function of a seeded generator and a folder. It damages something, gives it to the
package, and returns how that was handled. Whatever it raises instead, an exception other than the
package's own refusal, a warning, an answer that is not finite, or a hang, has been found by it.
"""

from __future__ import annotations

import contextlib
import copy
import json
import math
import os
import random
import shutil
import signal
import traceback
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar
from unittest import mock

from click.testing import CliRunner, Result

from crg.cli import main
from crg.types import InputError
from sentences import check_sentence

Outcome = Literal["refused", "handled"]
T = TypeVar("T")
Attack = Callable[[random.Random, Path], Outcome]
_SECONDS = 300  # after which a case hangs; the first one may have to compile the kernels


class Broken(AssertionError):  # noqa: N818 - the name says what happened
    """A promise that did not hold; the sentence says which."""


@dataclass(frozen=True)
class Family:
    """Attacks of one kind."""

    name: str
    attack: Attack
    cases: int  # in the tests, and in one turn of a soak

    def case(self, seed: int, place: Path) -> tuple[Outcome | None, str]:
        """How one case was handled; None with the reason if it was not."""
        folder = place / self.name
        folder.mkdir(exist_ok=True)
        try:
            # What the disk has matters to power failures only, and waiting for it takes long.
            with _deadline(), warnings.catch_warnings(), mock.patch.object(os, "fsync"):
                warnings.simplefilter("error")
                return self.attack(random.Random(f"{self.name} {seed}"), folder), ""
        except Exception as error:
            where = "".join(traceback.format_tb(error.__traceback__)[-3:])
            return None, f"{type(error).__name__}: {error}\n{where}"


@contextlib.contextmanager
def _deadline() -> Iterator[None]:
    def late(*_: object) -> None:
        raise Broken(f"still at it after {_SECONDS} seconds")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(_SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def fresh(folder: Path, copy_of: Path | None = None) -> Path:
    """The folder, emptied, or as a copy of another one."""
    shutil.rmtree(folder, ignore_errors=True)
    if copy_of is None:
        folder.mkdir(parents=True)
        return folder
    return Path(shutil.copytree(copy_of, folder))


def require(holds: bool, sentence: str) -> None:
    """A promise that must hold."""
    if not holds:
        raise Broken(sentence)


def attempt(work: Callable[[], T]) -> T | None:
    """What comes of something; None if it is refused, in one sentence that names a remedy."""
    try:
        return work()
    except InputError as error:
        check_sentence(str(error))
        return None


def refused(work: Callable[[], object]) -> bool:
    """Whether something is refused, in one sentence that names a remedy."""
    return attempt(lambda: (work(),)) is None


def command(*words: str | Path, **options: Any) -> Result:
    """A command in this process; it ends well or with one printable sentence."""
    done = CliRunner().invoke(main, [str(word) for word in words], **options)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    check_said(done.stderr)
    require(done.exit_code in (0, 1, 2), f"exit code {done.exit_code}")
    if done.exit_code == 2:
        sentence = done.stderr.rstrip("\n").split("\n")[-1]
        require(sentence.startswith("Error: "), f"no sentence: {done.stderr}")
        check_sentence(sentence)
    return done


def check_said(text: str) -> None:
    """What reaches a terminal is printable and no traceback."""
    require("Traceback" not in text, text[-2000:])
    odd = [c for c in text if not c.isprintable() and c != "\n"]
    require(not odd, f"{odd[:3]!r} was printed")


# Bytes and values


def bent(dice: random.Random, data: bytes) -> bytes:
    """The bytes with something wrong: bits, holes, repetitions, the end."""
    if not data or dice.random() < 0.1:
        return data + dice.randbytes(dice.randint(1, 64))
    start = dice.randrange(len(data))
    stop = min(len(data), start + dice.choice((1, 2, 4, 8, 64, 1024)))
    before, after, flipped = data[:start], data[stop:], bytearray(data)
    for _ in range(dice.choice((1, dice.randint(2, 9)))):
        flipped[dice.randrange(len(data))] ^= 1 << dice.randrange(8)
    middle = dice.choice((b"", dice.randbytes(stop - start), bytes(stop - start)))
    repeated = data[:stop] + data[start:]
    return dice.choice((before, before + middle + after, repeated, bytes(flipped)))


_ODD: tuple[Any, ...] = (
    *(None, True, False, -1, 0, 1, 2, 7, 2**31, -(2**31), 2**63, -(2**63) - 1, 10**30),
    *(0.5, -0.5, 1e-320, 1e18, 1e38, 1e300, -1e300, math.nan, math.inf, -math.inf),
    *("", " ", "text", "0", "nan", "a\u2028b", "\x1b[2J", "a\nb", "\x00", "\ud800", "x" * 5000),
    *("/etc/passwd", "../up", "-", "=1+1", "mini", "crg", "zero_shot"),
    *([], [[]], [None], [1, 2, 3], ["a", "b"], [[1.5, "b"], [None]], {}, {"a": 1}, {"": []}),
)


def odd_value(dice: random.Random) -> Any:
    """A value of some other kind or size than anybody expects."""
    if dice.random() < 0.1:
        nested: Any = 1
        for _ in range(dice.choice((20, 200))):
            nested = [nested]
        return nested
    return copy.deepcopy(dice.choice(_ODD))


def edited(dice: random.Random, value: Any) -> Any:
    """A JSON value with one thing changed, removed, repeated or renamed, anywhere in it."""
    value = copy.deepcopy(value)
    holders = [each for each in _walk(value) if each]
    if not holders or dice.random() < 0.05:
        return odd_value(dice)
    holder = dice.choice(holders)
    key = dice.choice(list(holder) if isinstance(holder, dict) else range(len(holder)))
    kind = dice.randrange(6)
    if kind == 0:
        del holder[key]
    elif kind == 1 and isinstance(holder, dict):
        holder[dice.choice(("", "other", "\u2028", f"{key} "))] = holder.pop(key)
    elif kind == 1:
        holder.insert(key, holder[key])
    elif kind == 2 and type(holder[key]) in (int, float):
        holder[key] *= dice.choice((-1, 2, 1000, 10**12, 0.5))
    else:
        holder[key] = odd_value(dice)
    return value


def _walk(value: Any) -> Iterator[Any]:
    if isinstance(value, (dict, list)):
        yield value
        for each in value.values() if isinstance(value, dict) else value:
            yield from _walk(each)


def bent_json(dice: random.Random, value: Any, depth: int = 100_000) -> bytes:
    """The text of a JSON value with something wrong in the value or in the text."""
    kind = dice.randrange(6)
    text = json.dumps(value if kind < 2 else edited(dice, value)).encode()
    if kind == 0:
        return bent(dice, text)
    if kind == 1:
        opening, closing = dice.choice(((b"[", b"]"), (b'{"a":', b"}")))
        deep = opening * depth + b"1" + closing * depth
        return dice.choice((deep, b'{"a": ' + deep + b"}", text[:-1] + b', "deep": ' + deep + b"}"))
    return text
