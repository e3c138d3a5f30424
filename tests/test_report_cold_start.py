"""Gains over the first images: orders begin differently, and the interval accounts for it."""

from __future__ import annotations

import statistics
from pathlib import Path

import numpy as np
import pytest

from crg import metrics
from crg.metrics import RESAMPLES
from crg.report.study import MethodResult
from crg.results.measurements import packed_bits
from crg.results.schema import Row
from crg.streams.orders import shuffled
from made_results import Bits, Book, share

A = Row("a", "crg", {"x": 1})
MINE = [share(120, first=10 * seed) for seed in range(5)]
BASE = share(100)


def book_of(orders: list[Bits], figure: str = "cold_start") -> Book:
    """Five runs whose images came in these orders."""
    book = Book([A], figure)
    book.add("a", MINE, base=BASE)
    for record, right, order in zip(book.records, MINE, orders, strict=True):
        record["metrics"]["right_in_order"] = packed_bits(right[order])
        record["zero_shot"]["right_in_order"] = packed_bits(BASE[order])
    return book


def line_of(book: Book, folder: Path) -> MethodResult:
    """What was measured of the method."""
    return book.read(folder).comparisons[0].of("a")


def test_images_are_drawn_in_all_orders_at_once(tmp_path: Path) -> None:
    """In shuffled streams the seed says who came first, and the interval is the crossed one."""
    orders = [shuffled(200, seed) for seed in range(5)]
    gain = line_of(book_of(orders), tmp_path).first_gain[100]
    seen = np.zeros((5, 200), dtype=bool)
    for place, order in enumerate(orders):
        seen[place, order[:100]] = True
    base = np.broadcast_to(BASE, (5, 200))
    expected = metrics.paired_interval(np.stack(MINE), base, seen, RESAMPLES)
    assert gain.interval == expected


def test_orders_that_are_not_the_seeds_are_nested(tmp_path: Path) -> None:
    """Where the answers do not fit the order of the seed, each order has images of its own."""
    orders = [shuffled(200, seed + 50) for seed in range(5)]
    gain = line_of(book_of(orders), tmp_path).first_gain[100]
    mine = np.stack([right[order[:100]] for right, order in zip(MINE, orders, strict=True)])
    base = np.stack([BASE[order[:100]] for order in orders])
    assert gain.interval == metrics.nested_interval(mine, base, RESAMPLES)


def test_other_figures_do_without(tmp_path: Path) -> None:
    """Nobody else shows the first images, so their intervals are not computed."""
    orders = [shuffled(200, seed) for seed in range(5)]
    assert line_of(book_of(orders, "table"), tmp_path).first_gain == {}


def test_curves_and_first_images(tmp_path: Path) -> None:
    """Accuracy so far is counted in the order of the stream, with a band over orders."""
    book = Book([A], "cold_start", orders=2)
    book.add("a", [share(120), share(80)], base=share(10), purity=0.5,
             purity_over_time=[[50, 0.9], [200, 0.5]])  # fmt: skip
    line = book.read(tmp_path).comparisons[0].of("a")
    assert (line.learning[0][0], line.learning[-1][0]) == (20, 200)
    assert 50 <= len(line.learning) <= 60
    assert line.learning[-1][1:] == pytest.approx((0.5, statistics.stdev([0.6, 0.4])))
    orders = [np.random.default_rng(seed).permutation(200)[:50] for seed in (0, 1)]
    shares = [share(n)[rows].mean() for n, rows in zip((120, 80), orders, strict=True)]
    base = statistics.fmean(share(10)[rows].mean() for rows in orders)
    assert sorted(line.first_gain) == [50, 100, 200]
    gain = line.first_gain[50].interval.mean
    assert gain == pytest.approx(statistics.fmean(shares) - base)
    assert line.purity_over_time == ((50, 0.9, 0.0), (200, 0.5, 0.0))
