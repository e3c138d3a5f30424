"""The encoding job: plan the store, find the blocks on disk, encode the others.

The key of a store names everything that decides its bytes, so that a store made from anything
else is refused. On a GPU, how many images the encoder gets at once can change the last bits of
their features, so the batches of a block depend on the block and on ``batch`` alone.
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from crg.encoders.base import Encoder, Vectors
from crg.encoding.variations import Variations
from crg.features.files import read_features
from crg.features.store import (
    CONTENT,
    GENERATED,
    HALF,
    VARIATIONS,
    Block,
    Header,
    Numbers,
    StoreWriter,
    digest,
    read_header,
    writing,
)
from crg.images.image_set import ImageSet
from crg.images.preprocessing import Pixels
from crg.images.views import Recipe, iter_views
from crg.prompts import Cache, Descriptions, class_prompts, distinct_names, encode_classes
from crg.threads import processors
from crg.types import InputError

# The number of a block, its features (n, V, D), and for each unreadable image its place in the
# block, where the features are zeros, with the reason.
EncodedBlock: TypeAlias = tuple[int, Numbers, dict[int, str]]


@dataclass(frozen=True)
class BlockOptions:
    """How every block of a job is encoded."""

    recipe: Recipe
    batch: int  # views that the encoder gets at once
    variations: Variations | None = None

    @property
    def n_views(self) -> int:
        """V, the generated ones included."""
        return self.recipe.views + (self.variations.count if self.variations else 0)


Run: TypeAlias = Callable[
    [Sequence[ImageSet], Encoder, BlockOptions, Callable[[int], None]],
    Generator[EncodedBlock, None, None],
]  # what encodes the blocks: ``encode_blocks``, or the same on a cluster
_VIEWS_PER_BLOCK = 1024  # at most so many are lost when a process is killed
_LEAST, _MOST = 8, 256  # images per block


@dataclass(frozen=True)
class Wording:
    """How class names become prompts; the templates are the dataset's own by default."""

    templates: tuple[str, ...] = ()
    descriptions: Descriptions | None = None
    cache: Cache = "default"

    def features(
        self, dataset: ImageSet, encoder: Encoder, on_note: Callable[[str], None] | None
    ) -> Vectors:
        """The text features (K, D) of the classes."""
        how = (self._templates(dataset), self.descriptions, self.cache, on_note)
        return encode_classes(encoder, dataset.class_names, *how)

    def key(self, dataset: ImageSet) -> dict[str, Any]:
        """The entries in the key of a store that decide its text features."""
        templates, described, kind = list(self._templates(dataset)), None, "template"
        if self.descriptions is not None:
            described = digest(class_prompts(dataset.class_names, (), self.descriptions))
            kind = "both" if templates else "descriptions"
        return {"prompts": kind, "template list": templates or None, "descriptions": described}

    def _templates(self, dataset: ImageSet) -> Sequence[str]:
        """Those given; without any, the dataset's own unless there are descriptions."""
        return self.templates or (dataset.templates if self.descriptions is None else ())


def make_plan(
    dataset: ImageSet, encoder: Encoder, options: BlockOptions, wording: Wording
) -> tuple[Header, list[Block]]:
    """The store for these images, this encoder, these views and these prompts, in blocks."""
    variations, size = options.variations, images_per_block(options.n_views)
    key = _key(dataset, encoder, options.recipe) | wording.key(dataset) | {"block": size}
    key |= {GENERATED: variations.count} if variations else {}
    header = Header(
        key=key | _content(dataset, variations),
        class_names=list(distinct_names(dataset.class_names)),
        logit_scale=float(encoder.logit_scale),
        ids=list(dataset.ids),
        labels=None if dataset.labels is None else list(dataset.labels),
        views=options.n_views,
        width=encoder.width,
    )
    starts = range(0, len(dataset), size)
    spans = [range(first, min(first + size, len(dataset))) for first in starts]
    parts = [_content(dataset.part(rows), variations) for rows in spans]
    contents = [digest([*part.values(), key]) for part in parts]
    return header, list(zip(spans, contents, strict=True))


def images_per_block(views: int) -> int:
    """The images of a block: fewer where each has more views.

    >>> images_per_block(1), images_per_block(64)
    (256, 16)
    """
    return min(max(_VIEWS_PER_BLOCK // views, _LEAST), _MOST)


def _key(dataset: ImageSet, encoder: Encoder, recipe: Recipe) -> dict[str, Any]:
    return {
        "dataset": dataset.name,
        "number of images": len(dataset),
        "list of images": digest([dataset.ids, dataset.labels, dataset.class_names]),
        "model": encoder.name,
        "weights": encoder.fingerprint,
        "precision": getattr(encoder, "precision", None),
        "views": recipe.views,
        "augment": recipe.augment,
        "seed": recipe.seed,
        "smallest crop": recipe.smallest,
        "crop interpolation": "bilinear",
        **{f"model's {name}": value for name, value in asdict(encoder.preprocessing).items()},
    }


def _content(dataset: ImageSet, variations: Variations | None) -> dict[str, str]:
    """Hashes of the files that images and variations come from."""
    content = {CONTENT: dataset.fingerprint()}
    return content | ({VARIATIONS: variations.fingerprint(dataset.ids)} if variations else {})


@dataclass(frozen=True)
class EncodingSummary:
    """The content of a finished store, and how much of it an earlier job had encoded."""

    folder: Path
    n_images: int  # in the store
    n_reused: int  # of the dataset, found on disk when the job began
    n_views: int
    width: int
    skipped: Sequence[tuple[str, str]]  # id and reason
    sha256: str


@dataclass(frozen=True)
class EncodingProgress:
    """How far a job is, in images."""

    reused: int  # done when this job began
    done: int  # those included
    total: int


def encode(
    dataset: ImageSet,
    encoder: Encoder,
    recipe: Recipe,
    out: str | os.PathLike[str],
    *,
    wording: Wording | None = None,
    variations: Variations | None = None,
    batch: int = 256,
    workers: int | None = None,
    run: Run | None = None,
    on_progress: Callable[[EncodingProgress], None] = lambda progress: None,
    on_note: Callable[[str], None] | None = None,
) -> EncodingSummary:
    """Encode a dataset into the store ``out``, continuing where an earlier call stopped.

    With ``variations`` each image has these as its last views. ``workers`` threads make views,
    one for each processor by default; ``run`` encodes blocks elsewhere, such as
    ``engine.ray.encode_on_ray``. The bytes on disk depend on neither. Images that cannot be
    read are left out and listed with the reason; if that is so of all, it is an error.
    """
    if not len(dataset):
        raise InputError(f"{dataset.name} holds no images: check the dataset.")
    if batch < 1 or (workers or 0) < 0:
        raise InputError(f"batch is {batch} and workers {workers}: give numbers from 1 on.")
    words, options = wording or Wording(), BlockOptions(recipe, batch, variations)
    plan, blocks = make_plan(dataset, encoder, options, words)
    with writing(Path(out), plan, blocks) as store:
        reused, was_finished = store.kept_images, store.finished
        if not was_finished:
            text = words.features(dataset, encoder, on_note)  # early: it may be refused
            run = run or functools.partial(encode_blocks, workers=workers)
            _encode_missing(store, dataset, encoder, options, run, on_progress)
            store.finish(text)
    return _summary(Path(out), reused, verify=was_finished)


def _encode_missing(
    store: StoreWriter,
    dataset: ImageSet,
    encoder: Encoder,
    options: BlockOptions,
    run: Run,
    on_progress: Callable[[EncodingProgress], None],
) -> None:
    missing, done = store.missing, (reused := store.kept_images)

    def advance(images: int) -> None:
        nonlocal done
        done += images
        on_progress(EncodingProgress(reused, done, len(dataset)))

    advance(0)
    parts = [dataset.part(store.blocks[number][0]) for number in missing]
    with contextlib.closing(run(parts, encoder, options, advance)) as encoded:  # ends the workers
        for place, images, unreadable in encoded:
            first = store.blocks[missing[place]][0].start
            skipped = {first + at: why for at, why in unreadable.items()}
            store.write(missing[place], images, skipped)


def _summary(folder: Path, reused: int, verify: bool) -> EncodingSummary:
    features = read_features(folder, verify)
    return EncodingSummary(
        folder=folder,
        n_images=len(features),
        n_reused=reused,
        n_views=features.n_views,
        width=features.task.width,
        skipped=tuple(read_header(folder).skipped.items()),
        sha256=features.sha256 or "",
    )


def encode_blocks(
    blocks: Sequence[ImageSet],
    encoder: Encoder,
    options: BlockOptions,
    advance: Callable[[int], None] = lambda images: None,
    workers: int | None = None,
) -> Generator[EncodedBlock, None, None]:
    """Encode one block after the other, while ``workers`` threads make the next views.

    Without a number there is a thread for each processor. ``advance`` is called with the number
    of images that were just encoded.
    """
    threads = processors() if workers is None else workers
    sources = chain.from_iterable(block.sources for block in blocks)
    ids = chain.from_iterable(block.ids for block in blocks)
    more = options.variations.of if options.variations else None
    views = iter_views(sources, ids, encoder.preprocessing, options.recipe, threads, more)
    with contextlib.closing(views):
        for number, block in enumerate(blocks):
            made = islice(views, len(block))
            yield number, *_encoded(block, made, encoder, options, advance)


def _encoded(
    block: ImageSet,
    views: Iterable[Pixels | InputError],
    encoder: Encoder,
    options: BlockOptions,
    advance: Callable[[int], None],
) -> tuple[Numbers, dict[int, str]]:
    images = np.zeros((len(block), options.n_views, encoder.width), HALF)
    unreadable: dict[int, str] = {}
    numbered, size = enumerate(views), max(1, options.batch // options.n_views)
    while group := list(islice(numbered, size)):  # unreadable images count as well
        unreadable |= {place: str(made) for place, made in group if isinstance(made, InputError)}
        readable = {place: made for place, made in group if not isinstance(made, InputError)}
        if readable:
            places = list(readable)
            pixels = np.concatenate(list(readable.values()))
            starts = range(0, len(pixels), options.batch)
            parts = [encoder.encode_images(pixels[at : at + options.batch]) for at in starts]
            images[places] = np.concatenate(parts).reshape(len(places), options.n_views, -1)
            peaks = np.abs(images[places]).max(axis=2)  # of each view; NaN stays NaN
            bad = np.flatnonzero((~np.isfinite(peaks) | (peaks == 0)).any(axis=1))
            if bad.size:
                raise InputError(
                    f"The model gave no usable features for {block.ids[places[bad[0]]]}: "
                    "use a higher --precision or another --model."
                )
        advance(len(group))
    return images, unreadable
