"""The same service on a Ray cluster: encoders and sessions are actors, the log stays here.

Replicas read and encode images. Owners hold what sessions have learnt; a session stays with one
owner. An owner has nothing on the disk: when it is lost, the next one gets the newest snapshot and
the events after it from here, and goes on with the same bits. Ray starts what is lost again.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import tempfile
import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crg.atomic import replacing
from crg.encoders.base import Encoder, Vectors, library
from crg.encoding.blocks import encoder_needs, loading_the_same
from crg.encoding.ray_cluster import connected, room_for
from crg.engine.ray import WorkerEnvironment, variables
from crg.plugins import load_plugins
from crg.server.batching import Encoding
from crg.server.event_log import Event, Log, Row
from crg.server.learner import Learner, LostError, States
from crg.server.replicas import Replica, ReplicaBatcher, nobody, turns
from crg.server.service import Service, Settings

_AT_ONCE = 64  # sessions that wait for their owners


class Owner:
    """The actor in which sessions learn."""

    def __init__(self, load: Callable[[], Encoder], place: WorkerEnvironment) -> None:
        self._load, self._place = load, place
        self._folder = tempfile.TemporaryDirectory()
        self._learners: dict[int, Learner] = {}

    @functools.cached_property
    def _states(self) -> States:
        self._place.check()
        with contextlib.suppress(OSError):  # for plug-ins that are modules there
            os.chdir(self._place.folder)
        load_plugins(self._place.plugins)
        return States(Path(self._folder.name), functools.cache(self._load))

    def prepare(self) -> None:
        """Get ready for the first session."""
        self._states  # noqa: B018

    def begin(self, key: int, row: Row, seq: int, snapshot: bytes | None) -> int:
        """Hold a session, as it was started or as a snapshot has it; the number of classes."""
        if snapshot is None:
            learner = self._states.fresh(row)
        else:
            path = self._states.folder / "snapshot.crg"
            path.write_bytes(snapshot)
            learner = self._states.saved(row, seq, path)
        self._learners[key] = learner
        return learner.n_classes

    def learn(self, key: int, verb: str, *arguments: Any) -> tuple[Event, int]:
        """What a learner's method gives, and the number of classes after it."""
        learner = self._learner(key)
        return getattr(learner, verb)(*arguments), learner.n_classes

    def state(self, key: int) -> bytes:
        """What a session has learnt, as ``crg.load`` reads it."""
        path = self._states.folder / "state.crg"
        self._learner(key).save(path)
        return path.read_bytes()

    def forget(self, key: int) -> None:
        """Let a session go."""
        self._learners.pop(key, None)

    def _learner(self, key: int) -> Learner:
        if key not in self._learners:
            raise LostError  # this process is not the one that held it
        return self._learners[key]


class RemoteLearner(Learner):
    """A learner whose adapter is with an owner."""

    def __init__(self, ask: Callable[..., Any], key: int, seq: int, n_classes: int) -> None:
        self._ask, self._key, self.seq, self._n_classes = ask, key, seq, n_classes
        self._lost = False

    @property
    def n_classes(self) -> int:
        """The number of classes to choose from."""
        return self._n_classes

    def save(self, path: Path) -> None:
        """Write what was learnt as ``crg.load`` reads it."""
        content = self._answer("state")
        with replacing(path) as partial:
            partial.write_bytes(content)

    def answer(self, features: Any, name: str | None, thumbnail: bytes | None = None) -> Event:
        """Learn an image and say what it shows."""
        return self._learn("answer", features, name, thumbnail)

    def correct(self, image: Event, label: str) -> Event:
        """Learn what a person says that an image shows."""
        return self._learn("correct", image, label)

    def add_class(self, name: str, text_feature: Vectors) -> Event:
        """From now on choose from one class more."""
        return self._learn("add_class", name, text_feature)

    def remove_class(self, name: str) -> Event:
        """From now on choose from one class less."""
        return self._learn("remove_class", name)

    def _learn(self, verb: str, *arguments: Any) -> Event:
        event: Event
        event, self._n_classes = self._answer("learn", verb, *arguments)
        self.seq = event.seq
        return event

    def _answer(self, verb: str, *arguments: Any) -> Any:
        """What the owner answers; one that failed to once may have learnt what nobody knows of."""
        if self._lost:
            raise LostError
        try:
            return self._ask(verb, self._key, *arguments)
        except LostError:
            self._lost = True
            raise


class RemoteStates(States):
    """The folder of snapshots, of sessions that learn with owners."""

    def __init__(self, folder: Path, encoder: Callable[[], Encoder], cluster: Cluster) -> None:
        super().__init__(folder, encoder)
        self._cluster, self._keys = cluster, itertools.count()
        self._losses: Counter[str] = Counter()  # how often a session went to the next owner

    def load(self, row: Row, log: Log) -> tuple[Learner, int, int]:
        """A session as its log has it, with its owner or with the next that answers."""
        for _ in turns(len(self._cluster.owners)):
            with contextlib.suppress(LostError):
                return super().load(row, log)
        raise nobody("owner")

    def saved(self, row: Row, seq: int, path: Path) -> Learner:
        """The learner that a snapshot holds."""
        return self._begun(row, seq, path.read_bytes())

    def fresh(self, row: Row) -> Learner:
        """The learner that a session was started with."""
        return self._begun(row, 0, None)

    def _begun(self, row: Row, seq: int, snapshot: bytes | None) -> Learner:
        key, owners = next(self._keys), self._cluster.owners
        owner = owners[(int(row.id, 16) + self._losses[row.id]) % len(owners)]
        ask = functools.partial(self._ask, row.id, owner)
        learner = RemoteLearner(ask, key, seq, ask("begin", key, row, seq, snapshot))
        weakref.finalize(learner, _forget, owner, key).atexit = False
        return learner

    def _ask(self, session_id: str, owner: Any, verb: str, *arguments: Any) -> Any:
        try:
            return self._cluster.answer(owner, verb, *arguments)
        except LostError:
            self._losses[session_id] += 1
            raise


def _forget(owner: Any, key: int) -> None:
    with contextlib.suppress(Exception):  # it is gone, and the session with it
        owner.forget.remote(key)


@dataclass(frozen=True)
class Cluster:
    """The actors of a service."""

    ray: Any
    replicas: Sequence[Any]
    owners: Sequence[Any]

    def answer(self, actor: Any, verb: str, *arguments: Any) -> Any:
        """What an actor answers; ``LostError`` if it is gone."""
        return self.collect(getattr(actor, verb).remote(*arguments))

    def collect(self, waiting: Any) -> Any:
        """The answer that was asked for."""
        errors = self.ray.exceptions
        try:
            return self.ray.get(waiting)
        except errors.RayActorError:
            raise LostError from None
        except errors.RayTaskError as error:
            raise error.cause from None


@contextlib.contextmanager
def open_cluster(
    settings: Settings,
    encoder: Encoder,
    load: Callable[[], Encoder],
    replicas: int,
    owners: int,
    address: str | None = None,
    plugins: Sequence[str] = (),
) -> Iterator[Cluster]:
    """The actors of a service, on the cluster at ``address`` or on one of our own."""
    ray, needs, limits = library("ray", "ray"), encoder_needs(encoder), settings.limits
    load = loading_the_same(encoder, load)
    always = {"max_restarts": -1, "scheduling_strategy": "SPREAD"}
    with connected(ray, address, replicas * needs.processors):
        seeing = ray.remote(num_cpus=needs.processors, num_gpus=needs.gpus, **always)(Replica)
        learning = ray.remote(num_cpus=0, runtime_env={"env_vars": variables()}, **always)(Owner)
        count, place = min(replicas, room_for(ray, needs)), WorkerEnvironment.here(plugins)
        eye = (load, limits.max_pixels, limits.thumbnails > 0)
        cluster = Cluster(
            ray,
            [seeing.remote(*eye) for _ in range(count)],
            [learning.remote(load, place) for _ in range(owners)],
        )
        actors = (*cluster.replicas, *cluster.owners)
        try:
            for waiting in [actor.prepare.remote() for actor in actors]:
                cluster.collect(waiting)
            yield cluster
        finally:
            for actor in actors:
                ray.kill(actor)


class ClusterService(Service):
    """The service whose encoders and sessions are on a cluster."""

    learner_threads = _AT_ONCE

    def __init__(self, settings: Settings, encoder: Encoder, cluster: Cluster) -> None:
        super().__init__(settings, encoder)
        self._cluster = cluster

    def make_states(self, folder: Path) -> States:
        """Where sessions learn: with the owners."""
        return RemoteStates(folder, lambda: self.encoder, self._cluster)

    def make_batcher(self) -> Encoding:
        """Where images are encoded: by the replicas."""
        return ReplicaBatcher(self._cluster, self.metrics)
