"""Limits and other settings of the service, as ``crg serve --config FILE`` reads them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from crg.atomic import content_of
from crg.prompts import PHOTO, check_template
from crg.types import InputError

Positive = Annotated[int, Meta(ge=1)]
Natural = Annotated[int, Meta(ge=0)]


class ServerConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings and limits of the service; docs/service.md has the same table."""

    templates: Annotated[tuple[str, ...], Meta(min_length=1)] = (PHOTO,)
    precision: str = ""  # fp32, fp16 or bf16; what suits the device if it is empty
    replicas: Positive = 2  # of the encoder, with --engine ray
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
    max_memory: Positive = 2_000_000_000  # bytes of all sessions in memory
    max_session_memory: Positive = 500_000_000  # bytes of one session in memory
    max_queue: Positive = 256  # images that wait for their answers
    max_queue_bytes: Positive = 500_000_000  # of requests in memory
    max_watchers: Natural = 256  # open streams of events
    max_connections: Positive = 1_024
    body_timeout: Positive = 30  # seconds that the body of a request may take
    stall: Positive = 120  # seconds without progress after which /healthz fails
    expire: Natural = 0  # seconds until an unused session is deleted; 0: never
    thumbnails: Natural = 200  # kept per session
    snapshot_every: Positive = 256  # events

    def check_room(self, n_classes: int, views: int, size: int = 0) -> None:
        """Refuse a session with too many classes, views, or bytes in memory."""
        if n_classes > (most := self.max_classes):
            raise InputError(f"There would be {n_classes} classes: a session may have {most}.")
        if not 1 <= views <= self.max_views:
            raise InputError(f"views is {views}: give a whole number from 1 to {self.max_views}.")
        if size > (most := min(self.max_session_memory, self.max_memory)):
            raise InputError(f"The session would take {size:,} bytes of memory and may take "
                             f"{most:,}: choose smaller options or fewer classes.")  # fmt: skip


def read_config(path: Path) -> ServerConfig:
    """The settings that a TOML file holds; what it leaves out has its default."""
    try:
        config = msgspec.toml.decode(content_of(path), type=ServerConfig)
    except (UnicodeDecodeError, RecursionError, msgspec.MsgspecError) as error:
        raise InputError(
            f"{path} cannot be used ({error}): docs/service.md lists the settings."
        ) from None
    for template in config.templates:
        check_template(template)
    return config
