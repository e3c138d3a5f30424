"""What decides the bytes of a store, written down so that another one is told apart."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from crg.encoders.base import Encoder, Vectors
from crg.features.store import GENERATED, checksum, spans
from crg.features.store_writer import CONTENT, VARIATIONS, StorePlan
from crg.generation.variations import Variations
from crg.images.image_set import ImageSet
from crg.images.views import Recipe
from crg.prompts import Mode, class_prompts, distinct_names, encode_classes
from crg.prompts.descriptions import Descriptions
from crg.prompts.text_cache import Cache

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
