"""Frequencies: how often zero-shot says each class, as a running mean with a prior."""

from __future__ import annotations

from crg.parts.state import Stateful, without
from crg.types import Array, namespace


class Frequencies(Stateful):
    """Sums of zero-shot probabilities per class, in double precision."""

    def __init__(self, text: Array) -> None:
        """No image yet, for the classes of ``text`` (K, D)."""
        xp = namespace(text)
        self.sums = xp.zeros(text.shape[0], dtype=xp.float64, device=text.device)  # (K,)

    def see(self, probs: Array) -> None:
        """One image more, with its zero-shot probabilities (K,)."""
        xp = namespace(probs)
        self.sums = self.sums + xp.astype(probs, xp.float64)

    def log_mean(self, prior: float) -> Array:
        """ln of the mean probability of each class, (K,), with ``prior`` images of each."""
        xp, sums = namespace(self.sums), self.sums + prior
        return xp.log(sums / xp.sum(sums))

    def add_class(self, text: Array) -> None:
        """The new class has not been seen."""
        xp = namespace(self.sums)
        self.sums = xp.concat([self.sums, xp.zeros_like(self.sums[:1])])

    def remove_class(self, index: int) -> None:
        """Forget a class."""
        self.sums = without(self.sums, index)

    def _is_sound(self) -> bool:
        xp = namespace(self.sums)
        return bool(xp.all((self.sums >= 0.0) & xp.isfinite(self.sums)))
