"""Commands in this process, and waiting for other ones."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from crg.cli import main


def is_gone(pid: int) -> bool:
    """Whether a process has ended, even if nobody has asked for its exit code yet."""
    try:
        return "Z" in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2]
    except OSError:
        return True


def wait_until(came_true: Callable[[], bool]) -> None:
    """Wait up to 50 seconds."""
    deadline = time.monotonic() + 50
    while not came_true():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def called(*words: str, code: int = 0, **more: Any) -> Result:
    """A command that ends with this exit code, and what it said."""
    done = CliRunner().invoke(main, words, **more)
    assert done.exit_code == code, f"{done.output}{done.exception!r}"
    return done
