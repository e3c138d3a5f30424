"""What the service takes at most: every limit is an option of ``crg serve``."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from crg.methods.options import option
from crg.server.problems import Problem

_CLIENTS = 10_000  # whose requests are counted; whoever was away longest is forgotten


@dataclass(frozen=True)
class Limits:
    """Limits with their defaults; docs/service.md has the same table."""

    max_bytes: int = option(20_000_000, "Bytes of one image.", at_least=1)
    max_request_bytes: int = option(50_000_000, "Bytes of one request.", at_least=1)
    max_pixels: int = option(50_000_000, "Pixels of one image.", at_least=1)
    max_images: int = option(32, "Images in one request.", at_least=1)
    max_views: int = option(64, "Views per image.", at_least=1)
    max_classes: int = option(1_000, "Classes of one session.", at_least=2)
    max_sessions: int = option(10_000, "Sessions, in memory or not.", at_least=1)
    max_loaded: int = option(100, "Sessions in memory at once.", at_least=1)
    max_queue: int = option(256, "Images that wait for their answers.", at_least=1)
    max_queue_bytes: int = option(500_000_000, "Bytes of requests in memory.", at_least=1)
    max_rate: int = option(1_000, "Requests per second of one client.", at_least=1)
    max_watchers: int = option(256, "Open streams of events.", at_least=0)
    max_connections: int = option(1_024, "Open connections.", at_least=1)
    body_timeout: int = option(30, "Seconds that a request's head or body may take.", at_least=1)
    idle: int = option(300, "Seconds until an unused session leaves the memory.", at_least=1)
    expire: int = option(0, "Seconds until an unused session is deleted; 0: never.", at_least=0)
    thumbnails: int = option(200, "Thumbnails kept per session; 0: none.", at_least=0)
    snapshot_every: int = option(256, "Events between two snapshots.", at_least=1)


class Budget:
    """An amount that may be in use at once; whoever takes some gives it back."""

    def __init__(self, most: int, what: str, remedy: str) -> None:
        self._most, self.used = most, 0
        self._sentence = f"{what}: {remedy}."

    def take(self, amount: int) -> None:
        """Use so much more; refuse with 429 where that is too much."""
        if self.used + amount > self._most:
            raise Problem(429, self._sentence, retry_after=1)
        self.used += amount

    def give_back(self, amount: int) -> None:
        """Use so much less."""
        self.used -= amount


class Rate:
    """A token bucket per client: so many requests per second, twice as many in a burst."""

    def __init__(self, per_second: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_second, self._clock = per_second, clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def check(self, client: str) -> None:
        """Count one request of this client; refuse with 429 where that is too much."""
        now, burst = self._clock(), 2.0 * self._per_second
        left, then = self._buckets.pop(client, (burst, now))
        left = min(burst, left + (now - then) * self._per_second)
        self._buckets[client] = (max(0.0, left - 1), now)
        if len(self._buckets) > _CLIENTS:
            self._buckets.popitem(last=False)
        if left < 1:
            raise Problem(
                429,
                f"This client sent more than {self._per_second} requests per second: "
                "wait a second and send them more slowly.",
                retry_after=1,
            )
