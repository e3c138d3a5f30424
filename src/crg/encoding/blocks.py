"""A block of images becomes a block of features, the same bytes wherever it is encoded.

How many images the encoder gets at once can change the last bit of their features. So the batches
of a block depend on the block and on ``batch`` alone, never on timing.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import TypeAlias

import numpy as np

from crg.encoders.base import Encoder
from crg.encoding.variations import Variations
from crg.features.store import HALF, Numbers
from crg.images.image_set import ImageSet
from crg.images.preprocessing import Pixels
from crg.images.views import Recipe, iter_views
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
    skip_unreadable: bool
    variations: Variations | None = None

    @property
    def n_views(self) -> int:
        """V, the generated ones included."""
        return self.recipe.views + (self.variations.count if self.variations else 0)


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
        if unreadable and not options.skip_unreadable:
            break
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
