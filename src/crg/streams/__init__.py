"""Streams: orders, label noise, and here the scenario.

A scenario describes a stream beyond its images, in plain values that a file can hold.
"""

from __future__ import annotations

from msgspec import Struct

from crg.types import InputError

SHUFFLED = "shuffled"
ORDERS = (
    SHUFFLED,
    "by_class",  # one class after the other
    "dirichlet",  # classes come in bursts
    "imbalanced",  # few classes are frequent, most are rare
    "few_present",  # most of the classes never come
    "domains",  # one file after the other
    "out_of_distribution",  # some images belong to no class
    "many_names",  # the images of one file, with the names of several
)
SEVERAL_FILES = ("domains", "many_names")  # orders that need more than one
STRENGTHS = {
    **{"dirichlet": 0.1, "imbalanced": 20.0, "few_present": 0.2, "out_of_distribution": 0.2},
    "many_names": 0.0,
}
_POSITIVE, _FRACTION = "positive number", "fraction above 0 and at most 1"


class Scenario(Struct, frozen=True, omit_defaults=True):
    """Which images of a file come, in what order, how often, and with how much label noise.

    ``strength`` belongs to the order: the concentration of ``dirichlet``, how many times more
    frequent the most frequent class of ``imbalanced`` is than the rarest, the fraction of classes
    ``few_present`` keeps and ``out_of_distribution`` takes away, how many names ``many_names``
    makes up beside those of the files. None is the order's own default.
    """

    order: str = SHUFFLED
    strength: float | None = None
    images: int | None = None  # at most so many, the same ones for every seed
    mislabelled: float = 0.0  # fraction of what a cache takes in that goes to a wrong class
    passes: int = 1  # 2: only the answers after the whole stream has been seen count

    def __post_init__(self) -> None:
        if self.order not in ORDERS:
            raise InputError(f"There is no order {self.order!r}: there are {', '.join(ORDERS)}.")
        if self.strength is not None:
            _check_strength(self.order, self.strength)
        if not 0.0 <= self.mislabelled <= 1.0:
            raise InputError(f"mislabelled is {self.mislabelled}: give a fraction from 0 to 1.")
        if self.passes not in (1, 2):
            raise InputError(f"passes is {self.passes}: a stream is read once or twice.")
        if self.images is not None and self.images < 1:
            raise InputError(f"images is {self.images}: ask for at least one.")

    @property
    def chosen_strength(self) -> float | None:
        """The strength, or the default of the order; None for an order that has none.

        >>> outside = Scenario("out_of_distribution", 0.5)
        >>> Scenario("dirichlet").chosen_strength, outside.chosen_strength
        (0.1, 0.5)
        """
        return STRENGTHS.get(self.order) if self.strength is None else self.strength


def _check_strength(order: str, strength: float) -> None:
    if order not in STRENGTHS:
        raise InputError(f"The order {order!r} has no strength: leave it out.")
    allowed, fits = {
        "dirichlet": (_POSITIVE, strength > 0.0),
        "imbalanced": ("factor from 1 on", strength >= 1.0),
        "many_names": (_POSITIVE, strength >= 0.0),
    }.get(order, (_FRACTION, 0.0 < strength <= 1.0))
    if not fits:
        raise InputError(f"The strength of {order!r} is {strength}: give a {allowed}.")
