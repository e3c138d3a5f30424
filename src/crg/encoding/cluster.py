"""Blocks encoded by the actors of a Ray cluster, in the same bytes as here.

Each actor loads the encoder once. One that is lost with its machine is started again
elsewhere, and the block it was at is done again. Images that are files must be found under
the same path on every machine.

Sums of many threads are rounded otherwise than those of one. So an actor computes with as many
threads as this process would, and takes as many processors of the cluster; OMP_NUM_THREADS
sets how many.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Generator, Sequence
from typing import Any

from crg.encoders import load_encoder
from crg.encoders.base import Encoder
from crg.encoding.blocks import Block, EncodedBlock, Settings, encode_blocks
from crg.encoding.ray_cluster import connected, ray_library, room_for
from crg.threads import processors
from crg.types import InputError

_AHEAD = 2  # blocks that each actor has before it, so that none waits for the next
_TRIES = 3  # times that a block is begun anew when its actor is lost


def encode_on_ray(
    blocks: Sequence[Block],
    encoder: Encoder,
    settings: Settings,
    workers: int | None = None,
    address: str | None = None,
    load: Callable[[], Encoder] | None = None,
) -> Generator[EncodedBlock, None, None]:
    """Yield each block as soon as one of ``workers`` actors is done with it.

    Without a number there are as many actors as the cluster has room for.
    """
    if not blocks:
        return
    ray = ray_library()
    load = load or functools.partial(load_encoder, encoder.name)
    with connected(ray, address, (workers or max(1, processors() // _threads())) * _threads()):
        remote, room = _actor_class(ray, encoder)
        count = min(workers or room, room, len(blocks))
        facts = (load, encoder.name, encoder.fingerprint, settings, _torch_threads())
        actors = [remote.remote(*facts) for _ in range(count)]
        try:
            yield from _shared_out(ray, actors, blocks)
        finally:
            for actor in actors:
                ray.kill(actor)


class Worker:
    """Life of an actor: one encoder, many blocks. Complaints travel as text."""

    def __init__(
        self,
        load: Callable[[], Encoder],
        name: str,
        fingerprint: str,
        settings: Settings,
        torch_threads: int | None,
    ) -> None:
        self._load, self._settings, self._torch_threads = load, settings, torch_threads
        self._name, self._fingerprint = name, fingerprint

    def prepare(self) -> str | None:
        """Load the encoder; what is wrong with it comes back."""
        try:
            self._encoder  # noqa: B018
        except InputError as error:
            return str(error)
        return None

    def encode(self, block: Block) -> EncodedBlock | str:
        """The features of one block, or what is wrong in one sentence."""
        try:
            [encoded] = encode_blocks([block], self._encoder, self._settings, workers=0)
        except InputError as error:
            return str(error)
        return encoded

    @functools.cached_property
    def _encoder(self) -> Encoder:
        encoder = self._load()
        if encoder.fingerprint != self._fingerprint:
            raise InputError(
                f"The weights of {self._name} on a machine of the cluster are not those on this "
                "one: put the same file on each."
            )
        if self._torch_threads is not None and "torch" in sys.modules:
            sys.modules["torch"].set_num_threads(self._torch_threads)
        return encoder


def _threads() -> int:
    """How many threads array libraries take in this process unless they are told otherwise."""
    given = os.environ.get("OMP_NUM_THREADS", "")
    return int(given) if given.isdecimal() and int(given) else processors()


def _torch_threads() -> int | None:
    """Torch counts in its own way."""
    return sys.modules["torch"].get_num_threads() if "torch" in sys.modules else None


def _actor_class(ray: Any, encoder: Encoder) -> tuple[Any, int]:
    """What actors are made from, and for how many of them the cluster has room."""
    needs = {"CPU": _threads()}
    if str(getattr(encoder, "device", "cpu")) != "cpu":
        needs = {"CPU": 1, "GPU": 1}
    remote = ray.remote(
        num_cpus=needs["CPU"],
        num_gpus=needs.get("GPU", 0),
        max_restarts=-1,
        max_task_retries=_TRIES,
    )
    return remote(Worker), room_for(
        ray, needs, "add one, or set OMP_NUM_THREADS to a smaller number"
    )


def _shared_out(
    ray: Any, actors: list[Any], blocks: Sequence[Block]
) -> Generator[EncodedBlock, None, None]:
    """An actor gets blocks once it is there: on a busy cluster some may have to wait."""
    waiting = list(reversed(blocks))
    at_work = {actor.prepare.remote(): (actor, _AHEAD) for actor in actors}
    n_left = len(blocks)
    while n_left:
        [ready], _ = ray.wait(list(at_work), num_returns=1)
        actor, free = at_work.pop(ready)
        answer = _collected(ray, ready)
        for block in [waiting.pop() for _ in range(min(free, len(waiting)))]:
            at_work[actor.encode.remote(block)] = (actor, 1)
        if answer is not None:
            n_left -= 1
            yield answer


def _collected(ray: Any, ready: Any) -> EncodedBlock | None:
    try:
        answer: EncodedBlock | str | None = ray.get(ready)
    except ray.exceptions.RayActorError:
        raise InputError(
            f"Ray lost the worker {_TRIES + 1} times at the same block: there may be too little "
            "memory, so try fewer --workers or a smaller --batch."
        ) from None
    if isinstance(answer, str):
        raise InputError(answer)
    return answer
