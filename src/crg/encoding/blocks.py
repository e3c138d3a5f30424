"""A block of images becomes a block of features: the same bytes here and on a Ray cluster.

How many images the encoder sees at once can change the last bit of their features. So the
batches of a block depend on the block and on ``batch`` alone, never on who is first.

Sums of many threads are rounded otherwise than those of one. So a worker on Ray computes with as
many threads as this process would, and takes as many processors of the cluster; OMP_NUM_THREADS
sets how many. Images that are files must be found under the same path on every machine.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice

import numpy as np

from crg.encoders import load_encoder
from crg.encoders.base import Encoder
from crg.encoding.ray_cluster import Needs, Tell, work_on_ray
from crg.encoding.variations import Variations
from crg.features.store import HALF, Numbers
from crg.images.image_set import Source
from crg.images.preprocessing import Pixels
from crg.images.views import Recipe, iter_views
from crg.threads import processors
from crg.types import InputError


@dataclass(frozen=True)
class Settings:
    """How every block of a job is encoded."""

    recipe: Recipe
    batch: int  # views that the encoder is given at once
    skip_unreadable: bool
    variations: Variations | None = None

    @property
    def n_views(self) -> int:
        """V, the generated ones included."""
        return self.recipe.views + (self.variations.count if self.variations else 0)


@dataclass(frozen=True)
class Block:
    """Images that are encoded and written together."""

    index: int
    ids: tuple[str, ...]
    sources: tuple[Source, ...]


@dataclass(frozen=True, eq=False)
class EncodedBlock:
    """The features of a block (n, V, D); rows of ``unreadable`` images are zeros."""

    index: int
    images: Numbers
    unreadable: Mapping[int, str]  # place in the block -> what is wrong


def encode_blocks(
    blocks: Sequence[Block],
    encoder: Encoder,
    settings: Settings,
    workers: int | None,
    advance: Callable[[int], None] = lambda images: None,
) -> Generator[EncodedBlock, None, None]:
    """Encode one block after the other, while ``workers`` threads make the next views.

    Without a number there is a thread for each processor.
    """
    threads = processors() if workers is None else workers
    sources = chain.from_iterable(block.sources for block in blocks)
    ids = chain.from_iterable(block.ids for block in blocks)
    more = settings.variations.of if settings.variations else None
    views = iter_views(sources, ids, encoder.preprocessing, settings.recipe, threads, more)
    with contextlib.ExitStack() as stack:
        if hasattr(views, "close"):
            stack.callback(views.close)
        for block in blocks:
            yield _encoded(block, islice(views, len(block.ids)), encoder, settings, advance)


def encode_on_ray(
    blocks: Sequence[Block],
    encoder: Encoder,
    settings: Settings,
    workers: int | None = None,
    address: str | None = None,
    load: Callable[[], Encoder] | None = None,
) -> Generator[EncodedBlock, None, None]:
    """Yield each block as soon as one of the cluster's ``workers`` is done with it.

    Each worker loads the encoder once, with ``load``: ``load_encoder(encoder.name)`` if it is
    left out.
    """
    load = loading_the_same(encoder, load or functools.partial(load_encoder, encoder.name))
    make = functools.partial(_remote_encoder, load, settings)
    needs = encoder_needs(encoder)
    with contextlib.closing(work_on_ray(make, blocks, needs, workers, address)) as answers:
        for _, answer in answers:
            if isinstance(answer, InputError):
                raise answer
            yield answer


def encoder_needs(encoder: Encoder) -> Needs:
    """What a worker with such an encoder takes of the cluster."""
    on_gpu = str(getattr(encoder, "device", "cpu")) != "cpu"
    return Needs(
        processors=1 if on_gpu else _threads(),
        gpus=1 if on_gpu else 0,
        ahead=2,
        remedy="add one, or set OMP_NUM_THREADS to a smaller number",
    )


def loading_the_same(encoder: Encoder, load: Callable[[], Encoder]) -> Callable[[], Encoder]:
    """What loads this very encoder on another machine, to use as many threads there."""
    torch_threads = sys.modules["torch"].get_num_threads() if "torch" in sys.modules else None
    return functools.partial(_load_the_same, load, encoder.fingerprint, torch_threads)


def _load_the_same(
    load: Callable[[], Encoder], fingerprint: str, torch_threads: int | None
) -> Encoder:
    encoder = load()
    if encoder.fingerprint != fingerprint:
        raise InputError(
            f"The weights of {encoder.name} on a machine of the cluster are not those on this "
            "one: put the same file on each."
        )
    if torch_threads is not None and "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(torch_threads)
    return encoder


def _remote_encoder(
    load: Callable[[], Encoder], settings: Settings
) -> Callable[[Block, Tell], EncodedBlock]:
    """What a worker encodes blocks with."""
    encoder = load()

    def work(block: Block, tell: Tell) -> EncodedBlock:
        [encoded] = encode_blocks([block], encoder, settings, workers=0)
        return encoded

    return work


def _threads() -> int:
    """How many threads array libraries take in this process unless they are told otherwise."""
    given = os.environ.get("OMP_NUM_THREADS", "")
    return int(given) if given.isdecimal() and int(given) else processors()


def _encoded(
    block: Block,
    views: Iterable[Pixels | InputError],
    encoder: Encoder,
    settings: Settings,
    advance: Callable[[int], None],
) -> EncodedBlock:
    n_views = settings.n_views
    images = np.zeros((len(block.ids), n_views, encoder.width), HALF)
    unreadable: dict[int, str] = {}
    for group in _groups(views, max(1, settings.batch // n_views)):
        for place, made in group:
            if isinstance(made, InputError):
                unreadable[place] = str(made)
        if unreadable and not settings.skip_unreadable:
            break
        readable = [(place, made) for place, made in group if not isinstance(made, InputError)]
        if readable:
            places = [place for place, _ in readable]
            features = _features(encoder, np.concatenate([made for _, made in readable]), settings)
            images[places] = features.reshape(len(places), n_views, -1)
            _check(images, places, block)
        advance(len(group))
    return EncodedBlock(block.index, images, unreadable)


def _groups(
    views: Iterable[Pixels | InputError], size: int
) -> Iterator[list[tuple[int, Pixels | InputError]]]:
    """Runs of ``size`` images, each with its place; one that cannot be read counts as well."""
    numbered = enumerate(views)
    while group := list(islice(numbered, size)):
        yield group


def _features(encoder: Encoder, pixels: Pixels, settings: Settings) -> Numbers:
    starts = range(0, len(pixels), settings.batch)
    return np.concatenate(
        [encoder.encode_images(pixels[start : start + settings.batch]) for start in starts]
    )


def _check(images: Numbers, places: list[int], block: Block) -> None:
    peaks = np.abs(images[places]).max(axis=2)  # of each view; NaN stays NaN
    bad = np.flatnonzero((~np.isfinite(peaks) | (peaks == 0)).any(axis=1))
    if bad.size:
        raise InputError(
            f"The model gave no usable features for {block.ids[places[bad[0]]]}: "
            "use a higher --precision or another --model."
        )
