"""Watching for images that arrive while we work."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

_Stamp = tuple[int, int]  # bytes and time of the last change


def iter_arrivals(
    list_now: Callable[[], Iterable[Path]],
    interval: float = 0.5,
    idle: float | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[Path]:
    """Each image of ``list_now()`` in the order of arrival, for ever.

    A file that has changed since the last look is still being written and has to wait for
    the next one. One that changes after it was given is given again: it may have been taken
    in the middle of a slow copy. After ``idle`` seconds without an image the watch ends.
    """
    before: dict[Path, _Stamp] = {}
    given: dict[Path, _Stamp] = {}
    waited = 0.0
    while True:
        stamps = ((path, _stamp(path)) for path in list_now())
        now = {path: stamp for path, stamp in stamps if stamp and given.get(path) != stamp}
        settled = [path for path, stamp in now.items() if before.get(path) == stamp]
        before = now
        for path in sorted(settled, key=lambda path: (now[path][1], path)):
            given[path] = now[path]
            yield path
        waited = 0.0 if settled else waited + interval
        if idle is not None and waited > idle:
            return
        sleep(interval)


def _stamp(path: Path) -> _Stamp | None:
    try:
        facts = path.stat()
    except OSError:  # it went away again
        return None
    return facts.st_size, facts.st_mtime_ns
