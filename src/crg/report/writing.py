"""Pages on disk: written at once or not at all, and never over somebody's own file."""

from __future__ import annotations

from pathlib import Path

from crg.atomic import replacing
from crg.types import InputError

GENERATOR = "<meta name='generator' content='crg'>"
_HEAD = 2000  # bytes in which the mark of our pages stands


def check_page(path: Path, option: str = "--report") -> None:
    """Refuse, before any work, a place that cannot be written or holds something else."""
    if path.exists() and GENERATOR.encode() not in path.read_bytes()[:_HEAD]:
        raise InputError(f"{path} exists and is no page of ours: choose another with {option}.")
    if not path.absolute().parent.is_dir():
        raise InputError(
            f"{path} cannot be written because its folder does not exist: "
            f"make it or choose another with {option}."
        )


def write_page(path: Path, page: str) -> None:
    """Write the page, replacing an older one."""
    with replacing(path) as partial:
        partial.write_text(page, encoding="utf-8")
