"""What ``crg serve --config FILE`` may set, and how limits are kept."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from crg.prompts import PHOTO, check_template
from crg.server.schema import ProblemError
from crg.types import InputError

_CLIENTS = 10_000  # whose requests are counted; the one that was away longest is forgotten

Positive = Annotated[int, Meta(ge=1)]
Natural = Annotated[int, Meta(ge=0)]


class ServerConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings and limits of the service; docs/service.md has the same table."""

    templates: Annotated[tuple[str, ...], Meta(min_length=1)] = (PHOTO,)
    keep_images: bool = False
    allow_hosts: tuple[str, ...] = ()
    allow_origins: tuple[str, ...] = ()
    max_bytes: Positive = 20_000_000  # of one image
    max_request_bytes: Positive = 50_000_000
    max_pixels: Positive = 50_000_000  # of one image
    max_images: Positive = 32  # in one request
    max_views: Positive = 64  # per image
    max_classes: Annotated[int, Meta(ge=2)] = 1_000  # of one session
    max_sessions: Positive = 10_000  # in memory or not
    max_loaded: Positive = 100  # sessions in memory
    max_queue: Positive = 256  # images that wait for their answers
    max_queue_bytes: Positive = 500_000_000  # of requests in memory
    max_rate: Positive = 1_000  # requests per second of one client
    max_watchers: Natural = 256  # open streams of events
    max_connections: Positive = 1_024
    body_timeout: Positive = 30  # seconds that the body of a request may take
    idle: Positive = 300  # seconds until an unused session leaves memory
    expire: Natural = 0  # seconds until an unused session is deleted; 0: never
    thumbnails: Natural = 200  # kept per session
    snapshot_every: Positive = 256  # events

    @property
    def limits(self) -> dict[str, int]:
        """Every limit by its name."""
        settings = msgspec.structs.asdict(self)
        return {name: value for name, value in settings.items() if type(value) is int}


def read_config(path: Path) -> ServerConfig:
    """The settings that a TOML file holds; what it leaves out has its default."""
    try:
        config = msgspec.toml.decode(path.read_bytes(), type=ServerConfig)
    except (OSError, UnicodeDecodeError, RecursionError, msgspec.MsgspecError) as error:
        raise InputError(
            f"{path} cannot be used ({error}): docs/service.md lists the settings."
        ) from None
    for template in config.templates:
        check_template(template)
    return config


class Budget:
    """An amount that may be in use at once; whoever takes some gives it back."""

    def __init__(self, most: int, what: str, remedy: str) -> None:
        self._most, self.used = most, 0
        self._sentence = f"{what}: {remedy}."

    def take(self, amount: int) -> None:
        """Use so much more; refuse with 429 where that is too much."""
        if self.used + amount > self._most:
            raise ProblemError(429, self._sentence, retry_after=1)
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
            raise ProblemError(
                429,
                f"This client sent more than {self._per_second} requests per second: "
                "wait a second and send them more slowly.",
                retry_after=1,
            )
