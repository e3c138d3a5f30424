"""One image becomes V views: row 0 is the original, the others are random crops of it.

Row 0 is what the model's own preprocessing makes of the image. Rows 1 to V - 1 are random
resized crops, flipped half of the time, and with ``augment="augmix"`` also mixed with
distorted copies of themselves, as in TPT (Shu et al., 2022). A view depends on the seed, the
id of the image and its row, and on nothing else: neither on V, nor on the order of the
images, nor on the thread. Generated variations of the image may follow, each prepared as
row 0 is.

Views are resized as Pillow does it: one direction, then the other. Of a long strip Pillow can
resize the part that is seen, but keeps its place in single precision. So strips are resized by its
arithmetic in NumPy, to the last bit, which is slow.

Which direction comes first matters by a rounding, and more where bicubic values are cut off. It
is always that of Pillow 13, so that the pixels are the same whatever version of Pillow is
installed and whether or not the kernels are compiled.
"""

from __future__ import annotations

import hashlib
import math
from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import starmap
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
from PIL import Image

from crg.images import WORTH_COMPILING, pixel_kernels
from crg.images.augmix import DRAWS_FOR_AUGMIX, mix, random_mixture
from crg.images.preprocessing import Interpolation, Pixels, Preprocessing
from crg.images.reading import reading
from crg.threads import processors
from crg.types import InputError

# Where a view's random numbers are used; the others are AugMix's.
_TRIES = 10  # a pair of numbers each
_ROW, _COLUMN, _FLIP = 2 * _TRIES, 2 * _TRIES + 1, 2 * _TRIES + 2
DRAWS_FOR_CROPS = 2 * _TRIES + 3
_ASPECTS = (3 / 4, 4 / 3)  # width by height

Augment: TypeAlias = Literal["crops", "augmix"]
_DRAWS = 64  # random numbers that belong to one view, used or not
assert DRAWS_FOR_CROPS + DRAWS_FOR_AUGMIX <= _DRAWS
_AHEAD = 2  # images that each worker reads ahead of the caller
_VIEWS_PER_THREAD = 8  # fewer are not worth a thread
MOST_VIEWS = 1024  # of one image: papers use 64, and each is in memory


@dataclass(frozen=True)
class Recipe:
    """How many views of which kind; with ``dataclasses.asdict`` it can be kept as JSON.

    As TPT does, crops are resized bilinearly whatever the model uses.
    """

    # fmt: off
    views: int = field(default=1, metadata={  # V, row 0 included
        "help": "Views of each image, the original included; the papers use 64.", "at_least": 1})
    augment: Augment = field(default="crops", metadata={"help": "How views are made."})
    seed: int = field(default=0, metadata={
        "help": "Seed of the views, of random draws and of rendered shapes.", "at_least": 0})
    # fmt: on
    smallest: float = 0.08  # fraction of the image that a crop covers at least

    def __post_init__(self) -> None:
        if type(self.views) is not int or not 1 <= self.views <= MOST_VIEWS:
            raise InputError(
                f"views is {self.views!r}: give a whole number from 1 to {MOST_VIEWS:,}."
            )
        if type(self.seed) is not int:
            raise InputError(f"The seed of the views is {self.seed!r}: give a whole number.")
        if not 0 < self.smallest <= 1:
            raise InputError(
                f"The smallest crop is {self.smallest} of the image: "
                "give a fraction above 0 and at most 1."
            )
        if self.augment not in get_args(Augment):
            known = " or ".join(map(repr, get_args(Augment)))
            raise InputError(f"augment is {self.augment!r}: give {known}.")


@dataclass(frozen=True, slots=True)
class Crop:
    """A rectangle of the source, resized to ``scaled``, of which a square is cut at x, y."""

    left: int
    top: int
    width: int
    height: int
    scaled: tuple[int, int]  # width and height
    x: int = 0
    y: int = 0
    flipped: bool = False
    interpolation: Interpolation = "bilinear"

    @property
    def down_first(self) -> bool:
        """Whether the height is resized before the width: Pillow's rule from version 13 on.

        It is so if the height loses pixels, and more than twice as many as the width does.
        """
        less_width, less_height = self.width - self.scaled[0], self.height - self.scaled[1]
        return less_height > 2 * max(less_width, 0)


def original(width: int, height: int, side: int, how: Interpolation, squash: bool) -> Crop:
    """Row 0: what torchvision's Resize and CenterCrop, and so open_clip, make of an image."""
    if squash:
        return Crop(0, 0, width, height, (side, side), interpolation=how)
    longer = int(side * max(width, height) / min(width, height))
    scaled = (side, longer) if width <= height else (longer, side)
    x, y = (round((length - side) / 2) for length in scaled)
    return Crop(0, 0, width, height, scaled, x, y, interpolation=how)


def random_crop(
    width: int, height: int, side: int, draws: Sequence[float], smallest: float
) -> Crop:
    """Another row: torchvision's RandomResizedCrop and RandomHorizontalFlip.

    ``draws`` are numbers in [0, 1), always used at the same places, so that they need not be
    drawn one after the other.
    """
    narrowest, widest = _ASPECTS
    lowest, highest = math.log(narrowest), math.log(widest)
    for i in range(0, 2 * _TRIES, 2):
        area = width * height * (smallest + draws[i] * (1 - smallest))
        aspect = math.exp(lowest + draws[i + 1] * (highest - lowest))
        crop_width, crop_height = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
        if 0 < crop_width <= width and 0 < crop_height <= height:
            top = int(draws[_ROW] * (height - crop_height + 1))
            left = int(draws[_COLUMN] * (width - crop_width + 1))
            break
    else:  # none fits: the most of the image that keeps within the aspects
        crop_width = round(height * widest) if width / height > widest else width
        crop_height = round(width / narrowest) if width / height < narrowest else height
        top, left = (height - crop_height) // 2, (width - crop_width) // 2
    flipped = draws[_FLIP] < 0.5
    return Crop(left, top, crop_width, crop_height, (side, side), flipped=flipped)


_BITS = 22  # behind the point, of a weight
TOGETHER = 4  # lines that the compiled kernels handle in one go


def axis_weights(length: int, scaled: int, begin: int, side: int, bicubic: bool) -> Any:
    """For each of ``side`` places from ``begin`` on, the first pixel and the weights from there.

    The kernels are compiled with this function, too.
    """

    def kernel(distance: float) -> float:
        x = abs(distance)
        if not bicubic:
            return max(1.0 - x, 0.0)
        if x < 1.0:
            return (1.5 * x - 2.5) * x * x + 1.0
        return (((x - 5.0) * x + 8.0) * x - 4.0) * -0.5 if x < 2.0 else 0.0

    step = length / scaled
    stretch = max(step, 1.0)
    reach = (2.0 if bicubic else 1.0) * stretch
    n = min(length, math.ceil(reach) * 2 + 1)
    n += -n % TOGETHER
    first, weights = np.empty(side, np.int64), np.zeros((side, n), np.int32)
    row = np.empty(n)
    for i in range(side):
        centre = (begin + i + 0.5) * step
        low = max(int(centre - reach + 0.5), 0)
        high = min(int(centre + reach + 0.5), length)
        total = 0.0
        for j in range(high - low):
            row[j] = kernel((j + low - centre + 0.5) / stretch)
            total += row[j]
        for j in range(high - low):
            weights[i, j] = math.floor(row[j] / total * float(1 << _BITS) + 0.5)
        first[i] = low
    return first, weights


def cut_from_strip(part: Pixels, crop: Crop, side: int) -> Pixels:
    """The square that ``crop`` describes, of its rectangle ``part``, (H, W, 3); not flipped."""
    bicubic = crop.interpolation == "bicubic"
    across = axis_weights(crop.width, crop.scaled[0], crop.x, side, bicubic)
    down = axis_weights(crop.height, crop.scaled[1], crop.y, side, bicubic)
    one, (first, weights), axis = (down, across, 0) if crop.down_first else (across, down, 1)
    start, end = first[0], first[-1] + weights.shape[1]  # of the lines needed
    needed = part[:, start:end] if crop.down_first else part[start:end]
    return _combined(_combined(needed, one[0], one[1], axis), first - start, weights, 1 - axis)


def _combined(pixels: Pixels, first: Any, weights: Any, axis: int) -> Pixels:
    """One direction: 0 is down, 1 across."""
    lines, sums = np.moveaxis(pixels, axis, 0), []
    for low, each in zip(first, weights.astype(np.int64), strict=True):
        group = lines[low : low + len(each)]
        sums.append(np.tensordot(each[: len(group)], group, (0, 0)))
    rounded = (np.stack(sums, axis=axis) + (1 << (_BITS - 1))) >> _BITS
    whole: Pixels = np.clip(rounded, 0, 255).astype(np.uint8)
    return whole


_FILTERS = {"bilinear": Image.Resampling.BILINEAR, "bicubic": Image.Resampling.BICUBIC}
_LONG = 32  # an image scaled to more sides than these is not scaled whole


class ViewSource:
    """An image from which ``n_views`` views are cut, by several threads if need be."""

    def __init__(self, image: Image.Image, n_views: int) -> None:
        self._image = image
        self.kernels = pixel_kernels() if n_views >= WORTH_COMPILING else None
        if self.kernels is not None:  # both as lines of bytes
            turned = image.transpose(Image.Transpose.TRANSPOSE)
            self._rows = np.asarray(image).reshape(image.height, -1)
            self._columns = np.asarray(turned).reshape(image.width, -1)

    def cut(self, crop: Crop, out: Pixels) -> None:
        """Write the square that ``crop`` describes into ``out``, (S, S, 3)."""
        if self.kernels is None:
            out[:] = np.asarray(_cut_by_pillow(self._image, crop, len(out)))
            return
        bicubic, lines = crop.interpolation == "bicubic", out.reshape(len(out), -1)
        across = (crop.left, crop.width, crop.scaled[0], crop.x)
        down = (crop.top, crop.height, crop.scaled[1], crop.y)
        if crop.down_first:
            standing = np.empty_like(lines)
            self.kernels.resize(self._rows, down, across, bicubic, False, crop.flipped, standing)
            self.kernels.transpose(standing, lines)
        else:
            self.kernels.resize(self._columns, across, down, bicubic, crop.flipped, False, lines)


def _cut_by_pillow(image: Image.Image, crop: Crop, side: int) -> Image.Image:
    left, top, right, bottom = crop.left, crop.top, crop.left + crop.width, crop.top + crop.height
    whole = (crop.width, crop.height) == image.size
    part = image if whole else image.crop((left, top, right, bottom))
    square = _resized(part, crop, side)
    return square.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if crop.flipped else square


def _resized(part: Image.Image, crop: Crop, side: int) -> Image.Image:
    """One call, or two where older versions of Pillow would start with the other direction."""
    how, (width, height) = _FILTERS[crop.interpolation], crop.scaled
    if max(crop.scaled) > _LONG * side:
        return Image.fromarray(cut_from_strip(np.asarray(part), crop, side))
    if crop.down_first:
        part = part.resize((part.width, height), how)
    scaled = part.resize((width, height), how)
    if crop.scaled == (side, side):
        return scaled
    return scaled.crop((crop.x, crop.y, crop.x + side, crop.y + side))


def make_views(
    image: Any,
    preprocessing: Preprocessing,
    recipe: Recipe,
    sample_id: str,
    threads: int | None = None,
) -> Pixels:
    """The views of an image, (V, S, S, 3), made by as many threads as there are cores.

    ``image`` is anything that ``read_image`` takes.

    >>> from PIL import Image
    >>> clip = Preprocessing(224, (0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
    >>> make_views(Image.new("RGB", (640, 480)), clip, Recipe(views=3), "a.jpg").shape
    (3, 224, 224, 3)
    """
    with reading(image) as read:
        return views_of(read, preprocessing, recipe, sample_id, threads)


def views_of(
    image: Image.Image,
    preprocessing: Preprocessing,
    recipe: Recipe,
    sample_id: str,
    threads: int | None,
) -> Pixels:
    """The views that ``make_views`` makes, of an image that has been read."""
    draws = _random_numbers(recipe.seed, sample_id, recipe.views)
    source, side = ViewSource(image, recipe.views), preprocessing.size
    squash = preprocessing.fit == "squash"
    crops = [original(*image.size, side, preprocessing.interpolation, squash)]
    crops += [random_crop(*image.size, side, row, recipe.smallest) for row in draws[1:]]
    views = np.empty((recipe.views, side, side, 3), np.uint8)

    def make(rows: range) -> None:
        for row in rows:
            source.cut(crops[row], views[row])
            if row > 0 and recipe.augment == "augmix":
                mixture = random_mixture(draws[row][DRAWS_FOR_CROPS:], side)
                mix(views[row], mixture, source.kernels)

    n = max(1, min(threads or processors(), recipe.views // _VIEWS_PER_THREAD))
    if n == 1:
        make(range(recipe.views))
    else:
        with ThreadPoolExecutor(n, "crg-views") as pool:
            list(pool.map(make, [range(i, recipe.views, n) for i in range(n)]))
    return views


def iter_views(
    sources: Iterable[Any],
    ids: Iterable[str],
    preprocessing: Preprocessing,
    recipe: Recipe,
    workers: int,
    variations: Callable[[str], Sequence[Any]] | None = None,
) -> Generator[Pixels | InputError, None, None]:
    """The views of each image in turn, or the error that says why it could not be read.

    The images that ``variations`` returns for an id are added as the last views. That many
    ``workers`` read ahead, by two images each; with none, each image is read on demand.
    Closing the iterator ends the threads.
    """

    def views_or_error(source: Any, name: str) -> Pixels | InputError:
        try:
            views = make_views(source, preprocessing, recipe, name, None if workers < 1 else 1)
            others = [] if variations is None else variations(name)
            more = [make_views(each, preprocessing, Recipe(), name, 1) for each in others]
            return np.concatenate([views, *more]) if more else views
        except InputError as error:
            return error

    tasks = zip(sources, ids, strict=True)
    if workers < 1:
        yield from starmap(views_or_error, tasks)
        return
    pool = ThreadPoolExecutor(workers, "crg-views")
    waiting: deque[Future[Pixels | InputError]] = deque()
    try:
        for source, name in tasks:
            waiting.append(pool.submit(views_or_error, source, name))
            if len(waiting) > _AHEAD * workers:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _random_numbers(seed: int, sample_id: str, views: int) -> list[list[float]]:
    """The numbers in [0, 1) of each row, the same on every machine; row 0 needs none.

    The raw output of a bit generator is all that NumPy promises never to change.
    """
    if views == 1:
        return [[]]
    name = f"{seed}\0{sample_id}".encode("utf-8", "surrogatepass")  # file names may need it
    key = np.frombuffer(hashlib.sha256(name).digest()[:16], "<u8")
    raw = np.random.Philox(key=key).random_raw((views - 1) * _DRAWS)
    rows: list[list[float]] = ((raw >> 11) * 2.0**-53).reshape(-1, _DRAWS).tolist()
    return [[], *rows]
