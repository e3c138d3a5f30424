"""The progress display, on a terminal and elsewhere."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from crg.cli import progress
from crg.cli.progress import Display


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """The output to a terminal."""
    sent = io.StringIO()

    def terminal(**options: object) -> Console:
        return Console(file=sent, force_terminal=True, width=100, color_system=None)

    monkeypatch.setattr(progress, "Console", terminal)
    return sent


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time, in seconds, as its only item."""
    now = [0.0]
    monkeypatch.setattr("crg.cli.progress.time.monotonic", lambda: now[0])
    return now


def test_a_terminal_shows_the_whole_and_each_run_at_work(screen: io.StringIO) -> None:
    """A line for a run while it is at work, one for all runs, and at once why one failed."""
    with Display("runs", 3, lines=True) as shown:
        shown.running("crg, [dtd]", 0, 0)
        shown.running("crg, [dtd]", 120, 1692)
        shown._bars.refresh()
        during = screen.getvalue()
        shown.finished("crg, [dtd]")
        shown.finished("tda, a.npz", failure="a.npz is truncated: copy it again.")
        reported = screen.getvalue()
        screen.truncate(0)
        shown._bars.refresh()
        after = screen.getvalue()
    assert "crg, [dtd]" in during and "120/1692" in during and "0/3" in during
    assert "crg, [dtd]" not in after and "2/3" in after and "1 failed" in after
    assert "Failed: tda, a.npz: a.npz is truncated: copy it again." in reported
    assert (shown.done, shown.failed) == (2, 1)


def test_a_reason_is_printed_once_and_counted_at_the_end(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Twenty runs that fail for one reason are two lines; another reason is another line."""
    with Display("runs", 21, lines=True) as shown:
        for number in range(20):
            shown.finished(f"run {number}", failure="one class only.")
        shown.finished("last", failure="bad luck.")
    assert capsys.readouterr().err.splitlines() == [
        "Failed: run 0: one class only.",
        "Failed: last: bad luck.",
        "Failed for the same reason: 19 more (one class only.)",
        "21 of 21 runs, 21 failed",
    ]


def test_a_file_gets_a_plain_line_now_and_then(
    now: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    """At most one in ten seconds, none twice, and the last count; failures come at once."""
    with Display("runs", 300, lines=True) as shown:
        shown.finished("a", failure="bad luck.")
        assert capsys.readouterr().err == "Failed: a: bad luck.\n"
        for now[0] in (11.0, 12.0, 22.0, 33.0):
            shown.running("b", int(now[0]), 40)
        shown.finished("b")
    with Display("runs", 0, lines=True):  # without pieces there is nothing to count
        pass
    with Display("runs", 2) as shown:  # of a command that is silent in a pipe
        now[0] = 60.0
        shown.finished("a")
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.splitlines() == ["1 of 300 runs, 1 failed", "2 of 300 runs, 1 failed"]
