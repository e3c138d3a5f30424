"""Made-up experiments, one per kind of figure: small, and full of what reports must get right."""

from __future__ import annotations

import base64
import functools
import tempfile
from pathlib import Path

from PIL import Image

from crg.report import page
from crg.report.experiment import Experiment, read_experiments
from crg.results.schema import LABELLED_IMAGES, Setting, Source, Variant
from made_files import encoded
from made_results import Book, share

NASTY = "<script>alert(1)</script> 50% | a_b & {c} $d"
SHAPES = Source("shapes:night:3", "shapes", n_samples=200, n_classes=40, n_views=8, model="mini",
                sha256="1", prompts=("an image of a {}.", "a drawing of a {}."))  # fmt: skip
TEXTURES = Source("dtd", "dtd", n_samples=200, n_classes=47, n_views=1, model="RN50", sha256="2",
                  text_kind="simulated")  # fmt: skip
ABSENT = tuple(
    Source(f"{name}, RN50", name, model="RN50", missing="no store: run crg encode.")
    for name in ("sun397", "eurosat", "food101")
)
METHODS = (Variant("tda", "tda"), Variant("crg", "crg"))
PNG = encoded(Image.new("RGB", (8, 8), (200, 40, 60)), "PNG")


def table() -> Book:
    """Methods on two datasets, with a failure, a refusal, labels, tuning and a nasty name."""
    few = Variant("gda", "gda", needs=(LABELLED_IMAGES,))
    tuned = Variant("crg, tuned", "crg", {"alpha": 2}, tuned=True)
    rows = (*METHODS, Variant(NASTY, "dpe"), few, tuned, Variant("tpt", "tpt"))
    book = Book(rows, sources=(SHAPES, TEXTURES, *ABSENT), name="table")
    for source in (0, 1):
        for label, n in (("zero_shot", 100), ("tda", 60), ("crg", 150), (NASTY, 104), ("gda", 180),
                         ("crg, tuned", 170)):  # fmt: skip
            book.add(label, share(n), share(100), source=source, purity=0.5, peak_bytes=2_000_000)
    book.refuse("tpt", "Method 'tpt' needs a text encoder: give a store.")
    image = {"id": "1", "png": base64.b64encode(PNG).decode(), "truth": "red <b>star",
             "answers": {"zero_shot": "red heart", "crg": "red <b>star"}}  # fmt: skip
    book.records.append({"schema": 1, "kind": "gallery", "key": "g", "experiment": "table",
                         "source": SHAPES.name, "images": [image]})  # fmt: skip
    return book


def story_page(folder: Path) -> str:
    """The page of one method on one dataset, as ``crg demo`` writes it."""
    book = Book([Variant("crg", "crg")], "learning", sources=(SHAPES,), name="demo")
    book.add("zero_shot", share(100), share(100))
    book.add("crg", share(150), share(100))
    book.records.append(table().records[-1] | {"experiment": "demo"})
    return page.render([book.read(folder)])


def cold_start() -> Book:
    """Methods whose first images are looked at."""
    book = Book(METHODS, "cold_start", name="cold_start", sources=(SHAPES,))
    for label, n in (("zero_shot", 100), ("tda", 90), ("crg", 130)):
        track = [[20, 0.9], [200, n / 200]]
        answers = [share(n, first=9 * seed) for seed in range(5)]
        book.add(label, answers, share(100), purity_over_time=track)
    return book


def noise() -> Book:
    """Injected label noise in three strengths."""
    shares = (0.0, 0.3, 0.6)
    settings = [Setting(label=f"q = {q:g}", mislabelled=q, x=q) for q in shares]
    book = Book(METHODS, "noise", name="noise", sources=(SHAPES,), settings=settings,
                x_title="wrong labels, %")  # fmt: skip
    for place in range(3):
        for label, slope in (("zero_shot", 0), ("tda", 10), ("crg", 30)):
            book.add(label, share(120 - slope * place), share(120), setting=place)
    return book


def streams() -> Book:
    """Two kinds of stream."""
    settings = [Setting(label="shuffled"), Setting("by_class", "by class")]
    book = Book(METHODS, "streams", name="streams", sources=(TEXTURES,), settings=settings)
    for place in (0, 1):
        for label, n in (("zero_shot", 100), ("tda", 110), ("crg", 140 - 60 * place)):
            book.add(label, share(n), share(100), setting=place, outside_auroc=0.9)
    return book


def sweep() -> Book:
    """One number varied."""
    rows = [Variant(f"M = {n}", "crg", {"queue_size": n}, x=n) for n in (8, 10, 12)]
    book = Book(rows, "sweep", name="sweep", sources=(SHAPES,), x_title="slots per class")
    for label, n in (("zero_shot", 100), ("M = 8", 120), ("M = 10", 130), ("M = 12", 125)):
        book.add(label, share(n), share(100))
    return book


def ablation() -> Book:
    """Parts added one by one."""
    rows = [Variant("cache", "crg", {"g": False}), Variant("all", "crg", {"g": True})]
    book = Book(rows, "waterfall", sources=(SHAPES,), name="ablation")
    for label, n in (("cache", 110), ("all", 150)):
        book.add(label, share(n), share(100), options={"g": label == "all"})
    return book


@functools.cache
def every_experiment() -> list[Experiment]:
    """One of each kind, read from files."""
    books = (table(), cold_start(), noise(), streams(), sweep(), ablation())
    with tempfile.TemporaryDirectory() as folder:
        paths = [book.write(Path(folder, f"{n}.jsonl")) for n, book in enumerate(books)]
        return read_experiments(paths)


@functools.cache
def every_page() -> str:
    """The page of all of them: drawing it takes seconds."""
    return page.render(every_experiment())
