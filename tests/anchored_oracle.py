"""The plain form of the anchored Gaussian: every sum and every inverse from scratch.

It keeps all images with what each counted for each class and computes, in double precision,
whatever it needs from that list. It shares no code with the package; the tests that import it
prove that both define one method.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import softmax

from synthetic import unit

Numbers = np.ndarray[Any, Any]


@dataclass
class AnchoredOracle:
    """The anchored Gaussian, one plain step at a time."""

    text: Numbers  # t, (K, D), unit rows
    scale: float
    o: Any  # the options of the method, which it shares with the package

    def __post_init__(self) -> None:
        self.text = np.asarray(self.text, dtype=np.float64)
        k, width = self.text.shape
        self.x, self.gap = np.zeros((0, width)), np.zeros((0, width))  # of all images
        self.r, self.age = np.zeros((0, k)), np.zeros(0)
        self.whole = np.zeros(0)  # what each image counts for all classes, removed ones too
        self.final, self.zero_shot = np.zeros(k), np.zeros(k)  # F, Q
        self.log_tau = math.log(self.o.first_weight)
        self.n_views = self.n_agreed = 0
        self.first_counts: Numbers | None = None  # N before a second pass
        self.left: list[tuple[float, Numbers, float]] = []  # of classes that were removed
        self.refreshed_at, self.since = 0.0, 0
        self.shifts = np.zeros((k, width))
        self.corrected: list[int] = []

    @property
    def weight(self) -> Numbers:
        """What each image still counts, (n,)."""
        return 0.5 ** (self.age / self.o.half_life) if self.o.half_life else np.ones(len(self.age))

    @property
    def counts(self) -> Numbers:
        """N, (K,)."""
        return np.asarray(self.weight @ self.r)

    @property
    def sums(self) -> Numbers:
        """M, (K, D)."""
        return np.asarray((self.r.T * self.weight) @ self.x)

    def step(self, views: Numbers) -> Numbers:
        """Logits for one image, views (V, D) of unit length; then it is learnt."""
        x = self.feature(np.asarray(views, dtype=np.float64))
        z = self.scale * self.text @ x
        p, logits = softmax(z), z
        if self.counts.sum() > 0:
            grown = self.since >= (self.o.refresh - 1) * self.refreshed_at - 1e-9
            if self.refreshed_at == 0.0 or grown:
                self.refit()
            logits = self.answer(x, z, p)
        r = p**self.o.power
        self.learn(x, p, np.where(r < self.o.floor, 0.0, r))
        return logits

    def feature(self, views: Numbers) -> Numbers:
        """x."""
        if len(views) == 1 or self.o.views == "original":
            return np.asarray(views[0])
        mean = unit(views.mean(axis=0))
        self.n_views += 1
        self.n_agreed += int((self.text @ views[0]).argmax() == (self.text @ mean).argmax())
        if self.o.views == "blend" and self.n_agreed < 0.85 * self.n_views:
            return np.asarray(views[0])
        return unit(views[0] + mean)

    def refit(self) -> None:
        """Step 2."""
        weight, counts, sums, width = self.weight, self.counts, self.sums, self.text.shape[1]
        n, known = float(weight.sum()), counts > 0
        evidence = counts if self.first_counts is None else self.first_counts
        q = evidence[evidence > 0] / evidence.sum()
        self.u = math.exp(-float((q * np.log(q)).sum())) / float(np.sqrt(q).sum()) ** 2
        typical = float(counts @ counts / counts.sum())
        kappa = self.o.strictness / self.u**2 + self.o.growth * (1 / self.u**2 - 1) * typical
        self.kappa = min(self.o.firmest, kappa)
        self.anchors = weight @ self.gap / n + self.text
        r = weight * self.whole
        scatter = (self.x.T * r) @ self.x - (sums[known].T / counts[known]) @ sums[known]
        freedom = r.sum() - (counts / (counts + 1)).sum()
        for faded, row, count in self.left:  # see remove_class
            scatter = scatter - faded * np.outer(row, row) / count
            freedom -= faded * count / (count + 1)
        mean = weight @ self.x / n
        variance = max(1e-6, min(1.0, 1.0 - float(mean @ mean) + 1.0 / n))
        whole = scatter + variance * np.eye(width)
        self.precision = (max(0.0, freedom) + width) * np.linalg.inv(whole)
        self.psi = self.anchor_error()
        self.means = self.all_means()
        self.refreshed_at, self.since = n, 0

    def anchor_error(self) -> float:
        """psi: what lies between class means and anchors beyond sampling error."""
        total = weighted = 0.0
        squares = (self.weight**2) @ self.r**2
        for k in np.flatnonzero(self.counts > 1):
            n, d = self.counts[k], self.sums[k] / self.counts[k] - self.anchors[k]
            expected = len(d) / max(1.0, n**2 / squares[k])
            weighted += n * (d @ self.precision @ d - expected)
            total += n
        return max(0.0, weighted / total) if total else 0.0

    def all_means(self) -> Numbers:
        """mu, (K, D), of step 3."""
        firm = (self.kappa + self.counts)[:, None]
        return np.asarray((self.kappa * self.anchors + self.sums) / firm)

    def answer(self, x: Numbers, z: Numbers, p: Numbers) -> Numbers:
        """Steps 4 to 7."""
        tau, g, logits = math.exp(self.log_tau), *self.logits(x, z)
        slope = float(((p - softmax(tau * g)) * tau * g).sum())
        self.log_tau += self.o.rate * min(1.0, max(-1.0, slope))
        self.final, self.zero_shot = self.final + softmax(logits), self.zero_shot + p
        return logits

    def logits(self, x: Numbers, z: Numbers) -> tuple[Numbers, Numbers]:
        """G and the answer."""
        counts, tau, d = self.counts, math.exp(self.log_tau), x - self.means
        own = (self.kappa**2 * self.psi + x.size * counts / 2) / (self.kappa + counts) ** 2
        g = -0.5 * (((d @ self.precision) * d).sum(axis=1) - self.u**2 * own)
        g = g - g.max()
        e = min(1.0, (float(counts @ counts) / counts.sum() / self.o.ready) ** 3)
        b = self.o.balance * e * np.log((self.final + 1) / (self.zero_shot + 1))
        return g, z + b + e * tau * g + self.shifts @ self.centred(x)

    def centred(self, x: Numbers) -> Numbers:
        """x less the mean of all images."""
        return np.asarray(x - self.weight @ self.x / self.weight.sum())

    def learn(self, x: Numbers, p: Numbers, r: Numbers) -> None:
        """Step 8, and step 3 for the classes that the image counts for."""
        if self.o.half_life:
            decay = 0.5 ** (1 / self.o.half_life)
            self.final, self.zero_shot = decay * self.final, decay * self.zero_shot
            self.left = [(decay * faded, row, count) for faded, row, count in self.left]
        self.x, self.r = np.vstack([self.x, x]), np.vstack([self.r, r])
        self.whole = np.append(self.whole, r.sum())
        self.gap = np.vstack([self.gap, x - p @ self.text])
        self.age, self.since = np.append(self.age + 1, 0), self.since + 1
        if self.refreshed_at:
            self.means[r > 0] = self.all_means()[r > 0]

    def correct(self, image: int, label: int) -> None:
        """An image that was seen before counts for its class and for no other."""
        self.corrected.append(image)
        self.whole[image] += 1.0 - self.r[image].sum()
        self.r[image] = np.eye(len(self.text))[label]
        self.refit()
        x = self.x[image]
        _, logits = self.logits(x, self.scale * self.text @ x)
        other = int(np.where(np.arange(len(logits)) == label, -np.inf, logits).argmax())
        lacking = max(0.0, logits[other] + 2.0 - logits[label])
        c = self.centred(x)
        self.shifts[label] += 0.5 * lacking * c / (c @ c)
        self.shifts[other] -= 0.5 * lacking * c / (c @ c)

    def second_pass(self) -> Numbers:
        """Recount all images by their final answers, then answer all of them, (n, K)."""
        self.refit()
        self.first_counts, answers = self.counts, self.all_answers()
        r = softmax(answers, axis=1) ** self.o.power
        is_corrected = np.isin(np.arange(len(r)), self.corrected)[:, None]
        self.r = np.where(is_corrected, self.r, np.where(r < self.o.floor, 0.0, r))
        self.whole = self.r.sum(axis=1)
        self.refit()
        return self.all_answers()

    def all_answers(self) -> Numbers:
        """Logits of all images with what was learnt, (n, K)."""
        return np.stack([self.logits(x, self.scale * self.text @ x)[1] for x in self.x])

    def add_class(self, text: Numbers) -> None:
        """One more row of everything."""
        self.text = np.vstack([self.text, text])
        self.r = np.hstack([self.r, np.zeros((len(self.r), 1))])
        self.final, self.zero_shot = np.append(self.final, 0), np.append(self.zero_shot, 0)
        self.shifts = np.vstack([self.shifts, 0 * text])
        self.refreshed_at = 0.0

    def remove_class(self, index: int) -> None:
        """One row less; the scatter of the images around the mean of that class stays known."""
        row, count = self.sums[index], float(self.counts[index])
        if count > 0:  # its images still count in C and w, so what its mean took off them stays
            self.left.append((1.0, row, count))
        self.text, self.r = np.delete(self.text, index, 0), np.delete(self.r, index, 1)
        self.final, self.zero_shot = np.delete(self.final, index), np.delete(self.zero_shot, index)
        self.shifts = np.delete(self.shifts, index, 0)
        self.refreshed_at = 0.0
