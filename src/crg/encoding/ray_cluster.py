"""The Ray cluster that jobs run on: one that is there, or one of our own for the time of a job."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import socket
from collections.abc import Iterator
from typing import Any

from crg.types import InputError

_PATIENCE = 10.0  # seconds to wait for the cluster's address to answer
_ROOM = 200_000_000  # bytes for what is on its way, in a cluster of our own


def ray_library() -> Any:
    """Ray itself, or a sentence that says how to get it."""
    try:
        import ray
    except ImportError:
        raise InputError("The engine ray needs Ray: install crg-tta[ray].") from None
    return ray


@contextlib.contextmanager
def connected(ray: Any, address: str | None, processors: int) -> Iterator[None]:
    """The cluster at ``address``, the one in use, or one of our own that ends with the job.

    One of our own has so many ``processors`` to give away.
    """
    if ray.is_initialized():
        yield
        return
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nobody is told what runs here
    options = {"address": address} if address else _own_cluster(processors)
    try:
        _check_reachable(address or "")
        ray.init(**options, logging_level=logging.ERROR, log_to_driver=False)
    except (ConnectionError, RuntimeError, ValueError, ImportError, OSError) as error:
        reason = re.split(r"\.\s|\n", str(error).strip())[0].rstrip(".:")
        raise InputError(
            f"The Ray cluster at {address or 'this machine'} cannot be used "
            f"({reason or type(error).__name__}): start it with ray start or check --address."
        ) from None
    try:
        yield
    finally:
        ray.shutdown()


def room_for(ray: Any, needs: dict[str, int], remedy: str = "add one") -> int:
    """For how many workers that need so much of each kind the machines have room."""
    machines = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    room = sum(min(int(has.get(kind, 0)) // n for kind, n in needs.items()) for has in machines)
    if room < 1:
        wanted = " and ".join(f"{n} {kind}" for kind, n in needs.items())
        raise InputError(f"No machine of the Ray cluster has {wanted} for a worker: {remedy}.")
    return room


def _check_reachable(address: str) -> None:
    """Knock first: Ray itself tries for minutes before it gives up."""
    if place := re.fullmatch(r"([^/]+):(\d+)", address):
        with socket.create_connection((place[1], int(place[2])), timeout=_PATIENCE):
            pass


def _own_cluster(processors: int) -> dict[str, Any]:
    return {
        "address": "local",  # rather than one that somebody else has started here
        "num_cpus": processors,
        "include_dashboard": False,
        "object_store_memory": _ROOM,
    }
