"""Made-up studies, one per kind of figure: small, full of what reports must get right."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from PIL import Image

from crg.metrics import Interval
from crg.report.evidence.study import (
    Bin,
    Contrast,
    Curve,
    Line,
    Point,
    Shown,
    Spread,
    Study,
    Table,
    Trace,
)
from crg.results.outline import Outline, Row, Setting, Source
from crg.results.papers import Reported
from crg.streams.scenario import ORDERS, Scenario

BASE = 0.6
METHODS = ("zero_shot", "tip_adapter", "coop", "tpt", "difftpt", "tda", "dpe", "gda", "crg")
SHAPES = Source("shapes:night:3", "shapes", n_samples=1000, n_classes=40, n_views=8, model="mini",
                prompts=("an image of a {}.", "a drawing of a {}.", "the {}.", "{}.", "my {}.")
                )  # fmt: skip
TEXTURES = Source("dtd, RN50", "dtd", n_samples=1880, n_classes=47, n_views=1, model="RN50",
                  text_kind="simulated")  # fmt: skip
ABSENT = Source("imagenet-a, ViT-B/16", missing="no store in data/imagenet-a: run crg encode.")
SOURCES = (SHAPES, TEXTURES)
DEFAULT = Setting("shuffled")


def spread(mean: float, std: float | None = 0.006) -> Spread:
    """A mean over five orders, or of a single one."""
    return Spread(mean, std, (mean,) if std is None else (mean - 0.006, mean, mean + 0.006))


def contrast(difference: float, width: float = 0.01, against: str = "zero_shot") -> Contrast:
    """A difference whose verdict follows from its interval."""
    low, high = difference - width, difference + width
    verdict = "better" if low > 0 else "worse" if high < 0 else ""
    return Contrast(against, Interval(difference, low, high), verdict)


def curve(end: float, start: float = 0.5, points: int = 100) -> Curve:
    """A line that nears its end, with a band that narrows."""
    made = []
    for n in range(points):
        mean, band = end + (start - end) * math.exp(-n / 20), 0.04 * math.exp(-n / 30) + 0.004
        made.append(Point(10.0 * (n + 1), mean, mean - band, mean + band))
    return tuple(made)


def bins(accuracy: float) -> tuple[Bin, ...]:
    """Answers that are a little surer than right."""
    levels = (0.3, 0.5, 0.7, 0.9, 0.98)
    return tuple(Bin(50 * n, c, c * accuracy / 0.7) for n, c in enumerate(levels, start=1))


def line(row: Row, gain: float, **more: Any) -> Line:
    """A measured row; ``gain`` is what it has over zero-shot."""
    accuracy, is_base = BASE + gain, row.method == "zero_shot"
    facts: dict[str, Any] = {
        "accuracy": spread(accuracy), "to_zero_shot": None if is_base else contrast(gain),
        "ece": spread(0.08), "nll": spread(1.234), "worst_class": spread(0.1),
        "purity": None if is_base else spread(0.8), "milliseconds": spread(0.21),
        "reliability": bins(accuracy), "learning": curve(accuracy),
        "traces": tuple(Trace("results/made.jsonl", 7 + n, "ab", n) for n in range(3)),
    }  # fmt: skip
    return Line(row, "measured", **{**facts, **more})


def study(
    name: str,
    rows: Sequence[Row],
    tables: Sequence[Table],
    settings: Sequence[Setting] = (DEFAULT,),
    **more: Any,
) -> Study:
    """A study around its tables."""
    extra = {key: more.pop(key) for key in ("gallery", "notes") if key in more}
    outline = Outline(
        name, f"The experiment {name}", f"What {name} is about & how <b>it</b> is read.",
        more.pop("figure", name), tuple(rows), (*SOURCES, ABSENT), tuple(settings), (0, 1, 2), (),
        **more,
    )  # fmt: skip
    machine = {
        "crg": "0.6.0",
        "machine": "x86_64, 2 processors",
        "measured": "2026-01-01T10:00+00:00 to 2026-01-02T11:00+00:00",
    }
    return Study(outline, tuple(tables), (ABSENT,), machine=machine, **extra)


def table_study() -> Study:
    """Every method, with a failure, a row that was not run, a tuned one and papers' numbers."""
    rows = [Row(m, m, needs=("labelled images",) if m == "coop" else ()) for m in METHODS]
    rows.append(Row("crg, tuned", "crg", {"alpha": 2}, tuned=True))
    said = Reported(21.83, "table 1 of a paper", ("It is on 2,000 random images.",))
    gains = dict(zip(METHODS, (0, 0.003, 0.01, 0.02, 0.021, 0.03, -0.04, 0.031, 0.05), strict=True))
    lines = [line(row, gains.get(row.label, 0.06), reported=said) for row in rows]
    lines[2] = Line(rows[2], "not run", "there are no labelled images", said=("It is good.",))
    lines[4] = Line(rows[4], "failed", "out of memory <in> a worker")
    rival = contrast(0.02, against="tda")
    lines[7] = replace(lines[7], run_once=True)
    lines[8] = line(rows[8], 0.05, best=True, to_best_rival=rival, peak_bytes=183_500_000)
    tables = [Table(source, DEFAULT, tuple(lines)) for source in SOURCES]
    answers = {"zero_shot": "red heart", "tda": "red star", "crg": "red star"}
    gallery = {SHAPES.name: tuple(Shown(f"{n}", png(n), "red star", answers) for n in range(4))}
    notes = ("Fewer than five orders: spreads say little.",)
    return study("table", rows, tables, gallery=gallery, notes=notes, reported="robustness")


def png(number: int) -> bytes:
    """A small image."""
    file = io.BytesIO()
    Image.new("RGB", (24, 24), (200, 40 * number, 60)).save(file, "PNG")
    return file.getvalue()


def few_rows() -> tuple[Row, ...]:
    """The rows of the experiments with curves."""
    return tuple(Row(name, name) for name in ("zero_shot", "tda", "dpe", "crg"))


def cold_start_study() -> Study:
    """Learning curves with the first images counted."""
    rows, gains = few_rows(), (0.0, 0.02, -0.01, 0.04)
    counts = (50, 100, 200, 500)
    lines = [
        line(
            row,
            gain,
            first={n: spread(BASE + gain - 2 / n) for n in counts},
            first_gain={n: contrast(gain - 2 / n) for n in counts if row.method != "zero_shot"},
        )
        for row, gain in zip(rows, gains, strict=True)
    ]
    return study("cold_start", rows, [Table(s, DEFAULT, tuple(lines)) for s in SOURCES])


def purity_study() -> Study:
    """Errors in the cache over the stream."""
    rows = few_rows()
    lines = [line(rows[0], 0.0)]
    lines += [
        line(r, 0.02, purity_over_time=curve(0.7 + n / 20, 0.95)) for n, r in enumerate(rows[1:])
    ]
    return study("cache_error", rows, [Table(s, DEFAULT, tuple(lines)) for s in SOURCES],
                 figure="purity")  # fmt: skip


def waterfall_study() -> Study:
    """The six rows of the ablation."""
    gains = {
        "zero-shot": 0.0, "text and positive cache": 0.02, "+ text separation": 0.025,
        "+ negative": 0.018, "+ negative and cache separation": 0.03, "Gaussian alone": 0.035,
        "all": 0.05,
    }  # fmt: skip
    rows = [Row(label, "crg" if gain else "zero_shot") for label, gain in gains.items()]
    lines = [line(row, gains[row.label]) for row in rows]
    return study("ablation", rows, [Table(s, DEFAULT, tuple(lines)) for s in SOURCES],
                 figure="waterfall")  # fmt: skip


def sweep_study() -> Study:
    """One number varied."""
    numbers = (8.0, 10.0, 12.0, 14.0)
    rows = [Row("zero_shot", "zero_shot")]
    rows += [Row(f"M = {n:g}", "crg", {"queue_size": int(n)}, x=n) for n in numbers]
    lines = [line(row, 0.01 * n) for n, row in enumerate(rows)]
    tables = [Table(source, DEFAULT, tuple(lines)) for source in SOURCES]
    return study("queue_size", rows, tables, figure="sweep", x_title="M, slots per queue",
                 x_values=numbers)  # fmt: skip


def heat_study() -> Study:
    """Two numbers varied."""
    rows = [Row("zero_shot", "zero_shot")]
    rows += [
        Row(f"lambda1 = {a}, lambda2 = {b}", "crg", {"lambda1": a, "lambda2": b})
        for a in (5.0, 7.0, 10.0)
        for b in (0.2, 0.3, 0.4)
    ]
    lines = [line(row, 0.004 * n, best=n == 9) for n, row in enumerate(rows)]
    return study("weights", rows, [Table(s, DEFAULT, tuple(lines)) for s in SOURCES], figure="heat")


def noise_study() -> Study:
    """A fraction of insertions mislabelled; all lines end at nearly the same height."""
    labels = {
        "zero_shot": 0.0,
        "similarity matching": 0.2,
        "Gaussian": 0.1,
        "tda": 0.19,
        "crg": 0.12,
    }
    rows = [Row(label, label if label in METHODS else "crg") for label in labels]
    shares = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6)
    settings = [Setting(f"q = {q:g}", Scenario(mislabelled=q)) for q in shares]
    tables = [
        Table(source, setting, tuple(_noisy(row, labels[row.label], q) for row in rows))
        for source in SOURCES
        for setting, q in zip(settings, shares, strict=True)
    ]
    return study(
        "noise", rows, tables, settings, x_title="insertions mislabelled, %", x_values=shares
    )


def _noisy(row: Row, slope: float, share: float) -> Line:
    gain = 0.0 if slope == 0 else 0.05 - slope * share
    change = None if share == 0 else contrast(-slope * share, against="q = 0")
    return line(row, gain, to_first_setting=change, mislabelled=share)


def streams_study() -> Study:
    """Every order of the stream."""
    rows = [Row(method, method) for method in METHODS]
    settings = [Setting(order.replace("_", " "), Scenario(order)) for order in ORDERS]
    tables = [
        Table(source, setting, tuple(
            line(r, (n and 0.02) - 0.004 * n * place, to_first_setting=contrast(
                -0.004 * n * place, against="shuffled") if n and place else None)
            for n, r in enumerate(rows)))
        for source in SOURCES
        for place, setting in enumerate(settings)
    ]  # fmt: skip
    return study("streams", rows, tables, settings)


def shots_study() -> Study:
    """Caches of growing size, with labels and without."""
    few = Row("", "tip_adapter", needs=("labelled images",), series="few-shot cache")
    own = Row("", "tda", series="zero-shot cache")
    rows = [Row("zero_shot", "zero_shot")]
    rows += [
        replace(kind, label=f"{kind.series}, {n}", x=float(n))
        for kind in (few, own)
        for n in (1, 2, 4, 8, 16)
    ]
    lines = [line(row, 0.003 * n) for n, row in enumerate(rows)]
    tables = [Table(source, DEFAULT, tuple(lines)) for source in SOURCES]
    return study("shots", rows, tables, x_title="images per class in the cache")


def all_studies() -> list[Study]:
    """One of each kind."""
    return [
        table_study(), waterfall_study(), sweep_study(), heat_study(), purity_study(),
        shots_study(), noise_study(), streams_study(), cold_start_study(),
    ]  # fmt: skip
