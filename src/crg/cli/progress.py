"""The one progress display: a bar for the whole, and one for each piece that is at work.

::

    with Display("runs", 300) as shown:
        shown.running("crg, dtd, order 3", 0, 0)        # it begins; no total yet
        shown.running("crg, dtd, order 3", 120, 1692)   # images done, images in all
        shown.finished("crg, dtd, order 3")
        shown.finished("tda, dtd, order 3", failure="There is no method 'tda': ...")

A piece is known by its text, which must be unique. Simple commands only call ``advance``.
"""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Self

import click
from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)

if TYPE_CHECKING:
    from crg.encoding import EncodingProgress

SECONDS_BETWEEN_LINES = 10.0  # where there is no bar
_SECONDS_OF_MEMORY = 600.0  # pieces may take minutes each: the time left is estimated from these


class Display:
    """Bars on a terminal's stderr, while the ``with`` block runs.

    Elsewhere nothing, or with ``lines`` a plain line on stderr every ten seconds if anything has
    changed, and one at the end. Failures are printed at once, in either case; further ones for
    the same reason are counted at the end.
    """

    def __init__(
        self, what: str, total: int | None, lines: bool = False, shown: bool = True
    ) -> None:
        console = Console(stderr=True, highlight=False)
        self._bars = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("[red]{task.fields[note]}"),
            TimeRemainingColumn(),
            console=console,
            transient=True,
            disable=not (shown and console.is_terminal),
            speed_estimate_period=_SECONDS_OF_MEMORY,
        )
        self._what, self._total, self._lines = what, total, lines and not console.is_terminal
        self._whole = self._bars.add_task(what, total=total, note="")
        self._at_work: dict[str, TaskID] = {}
        self._last_time = time.monotonic()
        self._last_line = ""
        self._reasons: Counter[str] = Counter()
        self.done = 0  # pieces, failed ones too

    def __enter__(self) -> Self:
        self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Print the last count, and how many more failed for a reason printed before."""
        for reason, count in self._reasons.items():
            if count > 1:
                self._print_failure(f"Failed for the same reason: {count - 1} more ({reason})")
        if self._total:
            self._print()
        self._bars.stop()

    @property
    def failed(self) -> int:
        """How many pieces failed."""
        return self._reasons.total()

    def advance(self) -> None:
        """Count one more piece as done."""
        self.done += 1
        note = f"{self.failed} failed" if self.failed else ""
        self._bars.update(self._whole, completed=self.done, note=note)
        self._print_now_and_then()

    def running(self, text: str, done: int, total: int) -> None:
        """Show how much of the piece called ``text`` is done; a ``total`` of 0 is not known yet."""
        if text not in self._at_work:
            self._at_work[text] = self._bars.add_task(f"  {escape(text)}", total=None, note="")
        self._bars.update(self._at_work[text], completed=done, total=total or None)
        self._print_now_and_then()

    def finished(self, text: str, failure: str | None = None) -> None:
        """Count the piece called ``text`` as done; ``failure`` is the reason if it failed."""
        if text in self._at_work:
            self._bars.remove_task(self._at_work.pop(text))
        if failure is not None:
            self._reasons[failure] += 1
            if self._reasons[failure] == 1:
                self._print_failure(f"Failed: {text}: {failure}")
        self.advance()

    def encoding(self, name: str, now: EncodingProgress) -> None:
        """Show how much of the dataset ``name`` is encoded."""
        self.running(f"encoding {name}", now.done, now.total)

    def _print_failure(self, sentence: str) -> None:
        self._bars.console.print(f"[red]{escape(sentence)}", soft_wrap=True)

    def _print_now_and_then(self) -> None:
        now = time.monotonic()
        if now - self._last_time >= SECONDS_BETWEEN_LINES:
            self._last_time = now
            self._print()

    def _print(self) -> None:
        """Print the count, unless that line was the last one."""
        failed = f", {self.failed} failed" if self.failed else ""
        line = f"{self.done} of {self._total} {self._what}{failed}"
        if self._lines and line != self._last_line:
            self._last_line = line
            click.echo(line, err=True)


def shown_encoding(stack: contextlib.ExitStack) -> Callable[[EncodingProgress], None]:
    """Show the images that a call encodes, once their number is known, until all are."""
    bars: list[Display] = []

    def show(at: EncodingProgress) -> None:
        if not bars:
            shown = Display("images", at.total - at.reused, lines=True)
            bars.append(stack.enter_context(shown))
        for _ in range(at.done - at.reused - bars[0].done):
            bars[0].advance()
        if at.done == at.total:
            stack.close()

    return show
