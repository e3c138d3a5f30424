"""A stream in the middle: full queues, and images that still replace some of their entries."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

import crg
from crg.adapter import Adapter
from crg.features.files import Features
from crg.ops import confident_views
from crg.parts.cache import Cache

sys.path.append(str(Path(__file__).parent.parent / "tests"))

from synthetic import gaussian_stream as gaussian_stream

Numbers = np.ndarray[Any, Any]

# A queue holds the best of this many images of its class, so an image that comes next
# replaces an entry with a probability of about M / 40: 30% for queues of 12.
SEEN_PER_CLASS = 40
_SPARE = 3  # images drawn per place, because classes are drawn at random
_ENTROPIES_FROM = 200  # images that the distribution of entropies is read off


@dataclass(frozen=True)
class Size:
    """How large one step is."""

    n_classes: int  # K
    width: int  # D
    n_views: int = 1  # V

    def __str__(self) -> str:
        views = "view" if self.n_views == 1 else "views"
        return f"K = {self.n_classes}, D = {self.width}, {self.n_views} {views}"


@dataclass(frozen=True, eq=False)
class Scene:
    """A task, images to step on, and entropies as the stream gives them."""

    size: Size
    task: crg.Task
    views: Numbers  # (N, V, D)
    entropies: Numbers  # (E,), of some of the images

    def __len__(self) -> int:
        return len(self.views)


def make_scene(size: Size, n_images: int) -> Scene:
    """The stream of one size; the same at every call."""
    stream = gaussian_stream(n_images, size.n_classes, size.width, size.n_views)
    views = stream.image_features.reshape(n_images, size.n_views, size.width)
    text, scale = stream.task.text_features, stream.task.logit_scale
    few = views[:_ENTROPIES_FROM]
    entropies = [confident_views(each, text, scale, 0.1).entropy for each in few]
    return Scene(size, stream.task, views, np.array(entropies))


def warm_adapter(method: str, scene: Scene, task: crg.Task | None = None) -> Adapter:
    """A method whose queues are full. What it derives from them is read off them anew."""
    adapter = crg.create(method, scene.task if task is None else task)
    inner: Any = adapter._method
    for name in ("cache", "positive", "negative"):
        queues = getattr(inner, name, None)
        if isinstance(queues, Cache):
            fill(queues, scene)
    if hasattr(inner, "_read_cache"):
        inner._read_cache()
    return adapter


def fill(queues: Cache, scene: Scene) -> None:
    """Offer each queue as many images of its class as it has places."""
    rng = np.random.default_rng(0)
    images = _images(scene.size.n_classes, scene.size.width, _SPARE * queues.size)
    labels, features = np.asarray(images.labels), images.image_features
    order = np.argsort(labels, kind="stable")
    starts = np.searchsorted(labels[order], np.arange(scene.size.n_classes + 1))
    for k in range(scene.size.n_classes):
        own = order[starts[k] : starts[k + 1]][: queues.size]
        seen = np.quantile(scene.entropies, rng.uniform(size=SEEN_PER_CLASS))
        for entropy, place in zip(np.sort(seen)[: len(own)], own, strict=True):
            queues.offer(k, _like(features[place], queues), float(entropy), f"warm {place}")


@lru_cache(maxsize=4)
def _images(n_classes: int, width: int, per_class: int) -> Features:
    """Images of the classes of every scene of this K and D.

    ``gaussian_stream`` draws the classes before the images, so one seed means the same
    classes however many images are asked for.
    """
    return gaussian_stream(per_class * n_classes, n_classes, width)


def _like(row: Numbers, queues: Cache) -> Any:
    return row.astype(queues.features.dtype)
