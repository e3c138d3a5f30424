"""A set of images with class names, which every dataset reader returns."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol, TypeAlias, runtime_checkable

from PIL import Image


@runtime_checkable
class Drawable(Protocol):
    """An image that is drawn on demand; picklable, and always drawn the same."""

    def draw(self) -> Image.Image:
        """The image, in RGB."""
        ...

    def describe(self) -> str:
        """Everything that decides how it looks, as one line; part of the set's fingerprint."""
        ...


Source: TypeAlias = Path | Drawable


@dataclass(frozen=True)
class ImageSet:
    """Images in a fixed order, with their classes where these are known."""

    name: str
    class_names: tuple[str, ...]
    templates: tuple[str, ...]  # prompts with one {} each
    ids: tuple[str, ...]  # distinct; for files the path below the root, with forward slashes
    sources: tuple[Source, ...]  # one per id
    labels: tuple[int, ...] | None = None  # one per id

    def __len__(self) -> int:
        """N, the number of images."""
        return len(self.ids)

    def part(self, rows: Sequence[int]) -> ImageSet:
        """The images of these rows, in this order."""
        labels = self.labels
        return replace(
            self,
            ids=tuple(self.ids[row] for row in rows),
            sources=tuple(self.sources[row] for row in rows),
            labels=None if labels is None else tuple(labels[row] for row in rows),
        )

    def fingerprint(self) -> str:
        """A hash of the ids, labels, class names and the sizes of the files; not of the prompts.

        Two copies of a dataset in different folders have the same one.
        """
        digest = hashlib.sha256("\n".join(self.class_names).encode())
        labels = self.labels if self.labels is not None else [-1] * len(self)
        for name, label, source in zip(self.ids, labels, self.sources, strict=True):
            facts: object = "missing"
            if not isinstance(source, Path):
                facts = source.describe()
            elif source.exists():
                facts = source.stat().st_size
            digest.update(f"\0{name}\0{label}\0{facts}".encode("utf-8", "surrogateescape"))
        return digest.hexdigest()
