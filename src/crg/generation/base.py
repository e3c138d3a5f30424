"""The protocol of a generator: one image in, variations of it out."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

from PIL import Image


class Generator(Protocol):
    """Makes variations of an image, each of which has a number from 0 on."""

    def generate(
        self, image: Image.Image, image_id: str, numbers: Sequence[int], seed: int
    ) -> Iterator[Image.Image]:
        """The variations of these numbers, in RGB.

        One depends on the image, its id, its number and the seed, and on nothing else.
        """
        ...

    def describe(self) -> Mapping[str, Any]:
        """What else decides how they look, as JSON values."""
        ...


def seed_of(seed: int, image_id: str, number: int) -> int:
    """A seed for one variation, the same on every machine.

    >>> seed_of(0, "cat/1.jpg", 0) == seed_of(0, "cat/1.jpg", 0) != seed_of(0, "cat/1.jpg", 1)
    True
    """
    name = f"{seed}\0{image_id}\0{number}".encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.sha256(name).digest()[:8], "little") >> 1  # torch's are signed
