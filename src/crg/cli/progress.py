"""Progress of a grid: a bar for the whole, and a line for each run that is at work.

::

    with grid_progress(300) as shown:
        shown.advanced("crg, dtd, order 3", 0, 0)        # it begins; no total yet
        shown.advanced("crg, dtd, order 3", 120, 1692)   # images done, images in all
        shown.finished("crg, dtd, order 3")
        shown.finished("tda, dtd, order 3", failure="There is no method 'tda': ...")

A run is known by its text, which must be its own. Runs that need no work, such as those of an
earlier call, are finished without having advanced.
"""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

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

from crg.bench.plan import Plan
from crg.bench.run import EngineOptions, missing_jobs, run_jobs
from crg.cli.shared import INTERRUPTED, SECONDS_BETWEEN_LINES, progress
from crg.results import ledger
from crg.threads import processors

if TYPE_CHECKING:
    from crg.encoding import EncodingProgress

FAILED = 1  # exit code where a run failed
_SECONDS_OF_MEMORY = 600.0  # runs may take minutes each, and the time left is reported from these


@contextlib.contextmanager
def grid_progress(
    total_runs: int, what: str = "runs", lines: bool = True
) -> Iterator[GridProgress]:
    """What to tell of a grid's progress: bars on a terminal's stderr.

    Elsewhere a plain line on stderr every ten seconds if anything has changed, and one at the
    end, or nothing without ``lines``. Failures are reported at once, in either case; those for a
    reason that was told are counted at the end.
    """
    console = Console(stderr=True, highlight=False)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("[red]{task.fields[note]}"),
        TimeRemainingColumn(),
    )
    with Progress(
        *columns,
        console=console,
        transient=True,
        disable=not console.is_terminal,
        speed_estimate_period=_SECONDS_OF_MEMORY,
    ) as bars:
        shown = GridProgress(bars, total_runs, what, lines and not console.is_terminal)
        try:
            yield shown
        finally:
            shown.close()


class GridProgress:
    """How far a grid is; made by ``grid_progress``."""

    def __init__(self, bars: Progress, total_runs: int, what: str, lines: bool) -> None:
        self._bars, self._total, self._what, self._lines = bars, total_runs, what, lines
        self._whole = bars.add_task(what, total=total_runs, note="")
        self._at_work: dict[str, TaskID] = {}
        self._last_time = time.monotonic()
        self._last_line = ""
        self.done = 0  # runs, failed ones too
        self.failed = 0
        self._reasons: Counter[str] = Counter()

    def advanced(self, text: str, done: int, total: int) -> None:
        """The run called ``text`` has done so many images; a ``total`` of 0 is not known yet."""
        if text not in self._at_work:
            self._at_work[text] = self._bars.add_task(f"  {escape(text)}", total=None, note="")
        self._bars.update(self._at_work[text], completed=done, total=total or None)
        self._tell_now_and_then()

    def finished(self, text: str, failure: str | None = None) -> None:
        """The run called ``text`` is over; ``failure`` is the reason if it failed."""
        if text in self._at_work:
            self._bars.remove_task(self._at_work.pop(text))
        self.done += 1
        if failure is not None:
            self.failed += 1
            self._reasons[failure] += 1
            if self._reasons[failure] == 1:
                self._say(f"Failed: {text}: {failure}")
        note = f"{self.failed} failed" if self.failed else ""
        self._bars.update(self._whole, completed=self.done, note=note)
        self._tell_now_and_then()

    def close(self) -> None:
        """Say how far it came, and how many failed for a reason that had been told before."""
        for reason, count in self._reasons.items():
            if count > 1:
                self._say(f"Failed for the same reason: {count - 1} more ({reason})")
        if self._total:
            self._tell()

    def _say(self, sentence: str) -> None:
        self._bars.console.print(f"[red]{escape(sentence)}", soft_wrap=True)

    def _tell_now_and_then(self) -> None:
        now = time.monotonic()
        if now - self._last_time >= SECONDS_BETWEEN_LINES:
            self._last_time = now
            self._tell()

    def _tell(self) -> None:
        """The count as a line, unless that line stands there already."""
        failed = f", {self.failed} failed" if self.failed else ""
        line = f"{self.done} of {self._total} {self._what}{failed}"
        if self._lines and line != self._last_line:
            self._last_line = line
            click.echo(line, err=True)


class EncodingBar:
    """A bar for the set that is being encoded; there is never more than one on the screen."""

    def __init__(self) -> None:
        self._shown = contextlib.ExitStack()
        self._name, self._done = "", 0

    def tell(self, name: str, now: EncodingProgress) -> None:
        """So far the set of this name is."""
        if name != self._name:
            self.close()
            self._advance = self._shown.enter_context(progress(f"encoding {name}", now.total))
            self._name, self._done = name, 0
        for _ in range(now.done - self._done):
            self._advance()
        self._done = now.done

    def close(self) -> None:
        """Take the bar off the screen."""
        self._shown.close()


def run_missing(
    planned: Plan,
    path: Path,
    known: ledger.Ledger,
    machinery: EngineOptions,
    lines: bool = True,
    is_kept: bool = True,
) -> int:
    """Run what the results file does not hold, with bars on a terminal, and count what failed.

    ``known`` is what was read from the file. Ctrl-C ends the command and says what is kept.
    """
    left = missing_jobs(planned, known)
    names = {job.key: job.name for job in left}
    if machinery.engine == "processes" and machinery.workers is None:
        machinery = replace(machinery, workers=processors())
    try:
        with grid_progress(len(left), lines=lines) as shown:
            runs = run_jobs(
                left,
                planned.plugins,
                path,
                machinery,
                lambda spec, done, total: shown.advanced(names[spec.key], done, total),
            )
            with contextlib.closing(runs):
                for done in runs:
                    shown.finished(done.job.name, done.failure)
    except KeyboardInterrupt:
        click.echo(_farewell(planned, path, is_kept), err=True)
        click.get_current_context().exit(INTERRUPTED)
    return shown.failed


def end_with(failed: int) -> None:
    """The last word and the exit code, where runs failed."""
    if failed:
        runs = "1 run" if failed == 1 else f"{failed} runs"
        again = "it" if failed == 1 else "them"
        click.echo(f"{runs} failed: the same command tries {again} again.", err=True)
        click.get_current_context().exit(FAILED)


def _farewell(planned: Plan, path: Path, is_kept: bool) -> str:
    runs = ledger.read(path).runs  # a run may have been written in the moment of the interruption
    kept = len([job for job in planned.jobs if job.key in runs])
    if not is_kept:
        return f"Stopped after {kept} of {len(planned.jobs)} runs, of which none is kept."
    return (
        f"Stopped: {kept} of {len(planned.jobs)} runs are kept in {path}, "
        "and the same command continues from there."
    )
