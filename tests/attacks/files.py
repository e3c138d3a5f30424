"""Attacks on files that people pass on: features, stores, results, designs, descriptions."""

from __future__ import annotations

import functools
import io
import json
import multiprocessing
import os
import random
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save as to_safetensors

from attacks import base
from crg.atomic import file_sha256
from crg.bench.design import read_design
from crg.features import store
from crg.features.files import read_features
from crg.predict.corrections import read_corrections
from crg.prompts import read_descriptions
from crg.report.experiment import read_experiments
from crg.results import ledger
from crg.results.schema import Variant
from encoding_fakes import dots, run
from made_files import raw_values
from made_results import Book, share

_EXPERIMENT = """
orders = 2
figure = "table"
[[row]]
method = "tda"
label = "three slots"
options = { positive_size = 3 }
[[row]]
method = "crg"
[[setting]]
order = "shuffled"
mislabelled = 0.1
x = 1.0
[[data]]
shapes = ["fog"]
severity = 2
images = 40
[quick]
orders = 1
"""


def _read(path: Path) -> base.Outcome:
    """Refused, or what was read is finite."""
    found = base.attempt(lambda: read_features(path))
    if found is None:
        return "refused"
    rows = np.stack([found.views(row) for row in range(min(3, len(found)))])
    base.require(bool(np.all(np.isfinite(rows))), "features that are not finite")
    base.require(found.task.n_classes >= 2, "no classes")
    return "handled"


@functools.cache
def _arrays() -> dict[str, Any]:
    values = raw_values()
    few = {"few_features": values["image_features"][:6], "few_labels": values["labels"][:6]}
    return {**values, **few, "ids": np.array([f"image {i}" for i in range(12)])}


def features(dice: random.Random, place: Path) -> base.Outcome:
    """Feature files, damaged or with odd values under known names."""
    values, suffix = dict(_arrays()), dice.choice((".npz", ".safetensors"))
    if dice.random() < 0.7:
        name = dice.choice(list(values))
        values[name] = _odd_array(dice, values[name])
    path = place / f"features{suffix}"
    if suffix == ".npz":
        file = io.BytesIO()
        np.savez(file, **values)
    content = file.getvalue() if suffix == ".npz" else _as_safetensors(dice, values)
    path.write_bytes(base.bent(dice, content) if dice.random() < 0.5 else content)
    return _read(path)


def _odd_array(dice: random.Random, array: Any) -> Any:
    array, kind = np.asarray(array), dice.randrange(6)
    if kind == 0:
        return array.astype(dice.choice(("U5", "S20", "O")))
    if kind == 1 and array.ndim:
        return array[dice.choice((0, 1, 3)) :][..., :2]
    if kind == 2:
        return array.reshape(dice.choice(((-1,), (1, -1), (-1, 1, 1))))
    if kind == 3 and array.dtype.kind in "fi":
        changed = array.copy()
        odd = (np.nan, np.inf, 0.0, 1e38) if array.dtype.kind == "f" else (-1, 99, 2**40)
        changed[...] = dice.choice(odd)
        return changed
    if kind == 4:
        return np.zeros(dice.choice(((), (0,), (2, 0), (3, 3, 3, 3))), dtype="f4")
    odd = base.odd_value(dice)
    return np.array(str(odd) if not isinstance(odd, (int, float, str, type(None))) else [odd])


def _as_safetensors(dice: random.Random, values: dict[str, Any]) -> bytes:
    tensors = {
        name: np.ascontiguousarray(value)
        for name, value in values.items()
        if np.asarray(value).dtype.kind in "fiub" and np.ndim(value)
    }
    texts = {name: np.asarray(v).tolist() for name, v in values.items() if name not in tensors}
    name = dice.choice([*texts, "class_names"])
    texts = {key: json.dumps(value, default=str) for key, value in texts.items()}
    if dice.random() < 0.5:
        odd = base.bent_json(dice, json.loads(texts.get(name, "[]")))
        texts[name] = odd.decode("utf-8", "replace")
    return bytes(to_safetensors(tensors, texts))


@functools.cache
def _store() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="crg-attacks-")) / "store"
    run(dots(20), folder)
    return folder


def stores(dice: random.Random, place: Path) -> base.Outcome:
    """A damaged file of a store, an edited store.json that is signed, or one cut under a reader."""
    folder = base.fresh(place / "store", _store())
    kind = dice.randrange(4)
    if kind == 0:
        return _cut_under_reader(dice, folder)
    file = dice.choice(sorted(path for path in folder.iterdir() if path.stat().st_size))
    if kind == 1:
        file.write_bytes(base.bent(dice, file.read_bytes()))
        return _read(folder)
    facts = json.loads((folder / store.HEADER).read_bytes())
    if kind == 2:
        facts = base.edited(dice, facts)
    elif file.name in facts["checksums"]:
        file.write_bytes(base.bent(dice, file.read_bytes()))
        facts["checksums"][file.name] = file_sha256(file)
    (folder / store.HEADER).write_bytes(_signed(dice, facts))
    return _read(folder)


def _signed(dice: random.Random, facts: Any) -> bytes:
    if not isinstance(facts, dict):
        return json.dumps(facts).encode()
    known = {key: value for key, value in facts.items() if key not in ("format", "version")}
    known.pop("sha256", None)
    top = {**facts, "sha256": store.digest(known)}
    return json.dumps(top).encode() if dice.random() < 0.9 else base.bent_json(dice, top)


def _cut_under_reader(dice: random.Random, folder: Path) -> base.Outcome:
    """In a child, because a mapped file that shrinks may end the process that reads it."""

    def read_while_cut() -> None:
        found = read_features(folder)
        os.truncate(folder / store.IMAGES, size)
        was_refused = base.refused(lambda: [found.views(row) for row in range(len(found))])
        os._exit(3 if was_refused else 0)

    size = dice.randrange(2000)
    child = multiprocessing.get_context("fork").Process(target=read_while_cut)
    child.start()
    child.join(60)
    base.require(child.exitcode in (0, 3), f"a reader ended with {child.exitcode}")
    return "refused" if child.exitcode == 3 else "handled"


@functools.cache
def _results() -> list[bytes]:
    book = Book((Variant("tda", "tda"), Variant("crg", "crg", {"alpha": 2}, tuned=True)), orders=2)
    for label, right in (("zero_shot", 20), ("tda", 24), ("crg", 30)):
        bins = [[20, 0.3, 0.2], [20, 0.9, 0.7]]
        book.add(label, share(right, 40), share(20, 40), reliability=bins, purity=0.5)
    with tempfile.TemporaryDirectory() as folder:
        return book.write(Path(folder, "results")).read_bytes().splitlines()


def results(dice: random.Random, place: Path) -> base.Outcome:
    """Results files with a damaged or edited line, as crg report and bench --rerun read them."""
    lines = list(_results())
    for _ in range(dice.randint(1, 3)):
        number = dice.randrange(len(lines))
        lines[number] = base.bent_json(dice, json.loads(_results()[number]), 20_000)
    path = place / "results.jsonl"
    content = b"\n".join(lines) + b"\n"
    path.write_bytes(base.bent(dice, content) if dice.random() < 0.2 else content)
    left_out = ledger.read(path).notes()
    if dice.random() < 0.35:
        line = f"{path}:{dice.randint(1, len(lines))}"
        report = ("report", path, "--out", place / "page.html")
        done = base.command(*(report if dice.random() < 0.25 else ("bench", "--rerun", line)))
        return "refused" if done.exit_code else "handled"
    was_refused = base.refused(lambda: read_experiments([path], on_note=lambda _: None))
    return "refused" if was_refused or left_out else "handled"


def designs(dice: random.Random, place: Path) -> base.Outcome:
    """TOML files of experiments with lines damaged, doubled, lost or of other kinds."""
    lines = _EXPERIMENT.splitlines()
    for _ in range(dice.randint(1, 3)):
        number = dice.randrange(len(lines))
        key = lines[number].partition("=")[0]
        lines[number] = dice.choice((
            "", f"{key}= {json.dumps(base.odd_value(dice))}", lines[number] * 2, dice.choice(lines),
            f"{key}= " + "[" * 5000 + "]" * 5000, f"{key}= 1979-05-27T07:32:00Z", f"[{key}]",
        ))  # fmt: skip
    path = place / "design.toml"
    content = "\n".join(lines).encode("utf-8", "surrogatepass")
    path.write_bytes(base.bent(dice, content) if dice.random() < 0.3 else content)
    return _by(lambda: read_design(path))


def descriptions(dice: random.Random, place: Path) -> base.Outcome:
    """Files of class descriptions."""
    path = place / "descriptions.json"
    known = {"red": ["a red thing.", "something red."], "blue": ["a blue thing."]}
    path.write_bytes(base.bent_json(dice, known))
    return _by(lambda: read_descriptions(path))


def corrections(dice: random.Random, place: Path) -> base.Outcome:
    """Files of corrections, as the review page writes them."""
    lines = [{"path": str(place / f"{name}.png"), "label": name} for name in ("red", "blue")]
    if dice.random() < 0.5:
        path, rows = place / "corrections.csv", [line.values() for line in lines]
        path.write_bytes(base.bent(dice, "\n".join(map(",".join, (lines[0], *rows, ""))).encode()))
    else:
        path = place / "corrections.jsonl"
        path.write_bytes(b"\n".join(base.bent_json(dice, line) for line in lines) + b"\n")
    return _by(lambda: read_corrections(path))


def _by(work: Callable[[], object]) -> base.Outcome:
    return "refused" if base.refused(work) else "handled"
