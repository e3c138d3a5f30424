"""The encoding job: what is asked for, what is on disk already, and who does the rest.

The plan of a job is what decides the bytes of a store, so that another one is told apart.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Generator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

from crg.encoders.base import Encoder, Vectors
from crg.encoding.blocks import Block, EncodedBlock, Settings, encode_blocks, encode_on_ray
from crg.features import store as storage
from crg.features.files import open_store
from crg.features.store import GENERATED, checksum, spans
from crg.features.store_writer import CONTENT, VARIATIONS, StorePlan, StoreWriter, writing
from crg.generation.variations import Variations
from crg.images.image_set import ImageSet
from crg.images.views import Recipe
from crg.prompts import (
    Cache,
    Descriptions,
    Mode,
    class_prompts,
    distinct_names,
    encode_classes,
)
from crg.types import InputError

_VIEWS_PER_BLOCK = 1024  # so many are lost at most when a process is killed
_LEAST, _MOST = 8, 256  # images per block


@dataclass(frozen=True)
class Wording:
    """How class names become sentences; the dataset's own templates unless others are given."""

    templates: tuple[str, ...] | None = None
    descriptions: Descriptions | None = None
    mode: Mode = "template"
    cache: Cache = "default"

    def features(
        self, dataset: ImageSet, encoder: Encoder, on_note: Callable[[str], None] | None
    ) -> Vectors:
        """The text features (K, D) of the classes."""
        return encode_classes(
            encoder,
            dataset.class_names,
            self._templates(dataset),
            self.descriptions,
            self.mode,
            self.cache,
            on_note,
        )

    def key(self, dataset: ImageSet) -> dict[str, Any]:
        """What of the wording decides the text features."""
        by_template = self.mode != "descriptions"
        return {
            "prompts": self.mode,
            "template list": list(self._templates(dataset)) if by_template else None,
            "descriptions": self._digest(dataset) if self.mode != "template" else None,
        }

    def _templates(self, dataset: ImageSet) -> tuple[str, ...]:
        return dataset.templates if self.templates is None else self.templates

    def _digest(self, dataset: ImageSet) -> str:
        mode: Mode = "descriptions"
        return _digest(class_prompts(dataset.class_names, (), self.descriptions, mode))


def make_plan(
    dataset: ImageSet,
    encoder: Encoder,
    recipe: Recipe,
    wording: Wording,
    variations: Variations | None = None,
) -> StorePlan:
    """The plan of the store for these images, this encoder, these views and these prompts."""
    views = recipe.views + (variations.count if variations else 0)
    block = images_per_block(views)
    key = _key(dataset, encoder, recipe) | wording.key(dataset) | {"block": block}
    if variations:  # a store without generated views says nothing of them
        key[GENERATED] = variations.count
    return StorePlan(
        key=key | _content(dataset, variations),
        class_names=distinct_names(dataset.class_names),
        logit_scale=encoder.logit_scale,
        logit_bias=encoder.logit_bias,
        ids=dataset.ids,
        labels=dataset.labels,
        views=views,
        width=encoder.width,
        block=block,
        contents=_contents(dataset, variations, block, _digest(key)),
    )


def images_per_block(views: int) -> int:
    """Fewer where each takes longer.

    >>> images_per_block(1), images_per_block(64)
    (256, 16)
    """
    return min(max(_VIEWS_PER_BLOCK // views, _LEAST), _MOST)


def _key(dataset: ImageSet, encoder: Encoder, recipe: Recipe) -> dict[str, Any]:
    return {
        "dataset": dataset.name,
        "number of pictures": len(dataset),
        "list of pictures": _digest([dataset.ids, dataset.labels, dataset.class_names]),
        "model": encoder.name,
        "weights": encoder.fingerprint,
        "precision": getattr(encoder, "precision", None),
        "views": recipe.views,
        "augment": recipe.augment,
        "seed": recipe.seed,
        "least area": recipe.smallest,
        "crop interpolation": recipe.crop_interpolation,
        **{f"model's {name}": value for name, value in asdict(encoder.preprocessing).items()},
    }


def _content(dataset: ImageSet, variations: Variations | None) -> dict[str, str]:
    """What the files are that images and variations come from."""
    content = {CONTENT: dataset.fingerprint()}
    return content | ({VARIATIONS: variations.fingerprint(dataset.ids)} if variations else {})


def _contents(dataset: ImageSet, variations: Variations | None, block: int, key: str) -> list[str]:
    """For each block what its features are made of: its images, and all else in the key."""
    parts = [dataset.part(rows) for rows in spans(len(dataset), block)]
    return [_digest([*_content(part, variations).values(), key]) for part in parts]


def _digest(value: Any) -> str:
    return checksum(json.dumps(value).encode())


Engine: TypeAlias = Literal["local", "ray"]


@dataclass(frozen=True)
class EncodingSummary:
    """What an encoding job has left behind."""

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
    engine: Engine = "local",
    address: str | None = None,
    load: Callable[[], Encoder] | None = None,
    skip_unreadable: bool = False,
    on_progress: Callable[[EncodingProgress], None] = lambda progress: None,
    on_note: Callable[[str], None] | None = None,
) -> EncodingSummary:
    """Encode a set of images into the store ``out``, going on where an earlier call stopped.

    With ``variations`` each image has these as its last views.

    ``workers`` are threads that make views, or actors with ``engine="ray"``, which load the
    encoder with ``load``: ``load_encoder(encoder.name)`` if it is left out. The bytes on disk
    depend on neither. Without a number there is one for each processor. Without
    ``skip_unreadable`` the first image that cannot be read ends the job; what was done
    before is kept.
    """
    _check_job(dataset, batch, workers, engine, address)
    words = wording or Wording()
    plan = make_plan(dataset, encoder, recipe, words, variations)
    settings = Settings(recipe, batch, skip_unreadable, variations)
    with writing(Path(out), plan, skip_unreadable) as store:
        reused, was_finished = store.kept_images, store.finished
        if not was_finished:
            text = words.features(dataset, encoder, on_note)  # early: it may be refused
            count = _Count(reused, len(dataset), on_progress)
            blocks = [_block(dataset, store, index) for index in store.missing]
            if engine == "ray":
                encoded = encode_on_ray(blocks, encoder, settings, workers, address, load)
            else:
                encoded = encode_blocks(blocks, encoder, settings, workers, count.advance)
            _keep(encoded, store, dataset, count, skip_unreadable)
            store.finish(text)
    return summary_of(Path(out), reused, verify=was_finished)


def _keep(
    encoded: Generator[EncodedBlock, None, None],
    store: StoreWriter,
    dataset: ImageSet,
    count: _Count,
    skip_unreadable: bool,
) -> None:
    with contextlib.closing(encoded):  # which ends the workers
        for block in encoded:
            first = store.rows(block.index).start
            unreadable = {first + place: why for place, why in block.unreadable.items()}
            if unreadable and not skip_unreadable:
                raise _unreadable(dataset, unreadable, store)
            store.write(block.index, block.images, unreadable)
            count.is_at(store.kept_images)


class _Count:
    """Counts images: those of a block as they come, and those on disk when it is written."""

    def __init__(self, reused: int, total: int, tell: Callable[[EncodingProgress], None]) -> None:
        self._reused, self._done, self._total, self._tell = reused, reused, total, tell
        self.is_at(reused)

    def advance(self, images: int) -> None:
        self.is_at(self._done + images)

    def is_at(self, done: int) -> None:
        self._done = done
        self._tell(EncodingProgress(self._reused, done, self._total))


def _block(dataset: ImageSet, store: StoreWriter, index: int) -> Block:
    rows = slice(store.rows(index).start, store.rows(index).stop)
    return Block(index, dataset.ids[rows], dataset.sources[rows])


def _check_job(
    dataset: ImageSet, batch: int, workers: int | None, engine: str, address: str | None
) -> None:
    if address is not None and engine != "ray":
        raise InputError(f"Only Ray has an address, {address}: add --engine ray or leave it out.")
    if not len(dataset):
        raise InputError(f"{dataset.name} holds no images: check the dataset.")
    if batch < 1 or (workers or 0) < 0:
        raise InputError(f"batch is {batch} and workers {workers}: give numbers from 1 on.")
    if engine not in ("local", "ray"):
        raise InputError(f"There is no engine {engine!r}: choose local or ray.")


def _unreadable(dataset: ImageSet, found: dict[int, str], store: StoreWriter) -> InputError:
    row, why = min(found.items())
    name = dataset.ids[row]
    where = "" if name in why else f"{name}: "
    return InputError(
        f"{where}{why.rstrip('.')}, or leave out all such images with --skip-unreadable "
        f"({store.kept_images} of {len(dataset)} images are kept in {store.folder})."
    )


def summary_of(folder: Path, reused: int | None = None, verify: bool = True) -> EncodingSummary:
    """What is in a finished store, of which an earlier job had left ``reused`` images."""
    features = open_store(folder, verify)
    skipped = [(each["id"], each["reason"]) for each in storage.skipped_images(folder)]
    return EncodingSummary(
        folder=folder,
        n_images=len(features),
        n_reused=len(features) if reused is None else reused,
        n_views=features.n_views,
        width=features.task.width,
        skipped=skipped,
        sha256=features.sha256 or "",
    )
