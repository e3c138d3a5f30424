"""``crg context``: what a learnt context is, in words."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
from rich.table import Table
from rich.text import Text

from crg.cli.shared import output, print_json
from crg.encoders import load_text_encoder
from crg.needs import PromptableTextEncoder
from crg.parts.context import Context, check_fit, read_context
from crg.parts.prompting import as_tensor


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--words", default=3, show_default=True, type=click.IntRange(min=1), help="Words per vector."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def context(file: Path, words: int, as_json: bool) -> None:
    """Show a context that coop learnt: its model, its shape and the words nearest to it.

    The words are those of the model's vocabulary; what was learnt often lies far from all.

    \b
    Example:
      crg run night --method coop --few labelled -o save_context=night.context
      crg context night.context
    """
    learnt = read_context(file)
    encoder = load_text_encoder(learnt.model)
    check_fit(learnt, encoder, str(file))
    rows = list(_rows(learnt, encoder, words))
    if as_json:
        print_json({**_facts(learnt), "vectors": rows})
        return
    console = output()
    console.print(Text(_sentence(learnt)))
    console.print(_table(learnt, rows))


def _facts(learnt: Context) -> dict[str, Any]:
    return {
        "model": learnt.model,
        "shape": list(learnt.vectors.shape),
        "classes": list(learnt.class_names),
        "started_from": learnt.words or None,
    }


def _sentence(learnt: Context) -> str:
    *_, length, width = learnt.vectors.shape
    whose = f"for each of {len(learnt.class_names)} classes" if learnt.class_names else "shared"
    start = f"from {learnt.words!r}" if learnt.words else "at random"
    return (
        f"{length} vectors of width {width}, {whose}, for {learnt.model}; training began {start}."
    )


def _rows(learnt: Context, encoder: PromptableTextEncoder, count: int) -> Iterator[dict[str, Any]]:
    """One for each vector, class by class."""
    sets = learnt.vectors if learnt.class_names else learnt.vectors[None]
    reference = encoder.context_of("a")
    for name, vectors in zip(learnt.class_names or (None,), sets, strict=True):
        found = encoder.nearest_words(as_tensor(vectors, reference), count)
        for place, nearest in enumerate(found, start=1):
            yield {"class": name, "vector": place, "nearest_words": nearest}


def _table(learnt: Context, rows: list[dict[str, Any]]) -> Table:
    first = ["class"] if learnt.class_names else []
    table = Table(*first, "vector", "nearest words")
    for row in rows:
        name = [Text(row["class"])] if learnt.class_names else []
        table.add_row(*name, str(row["vector"]), Text(", ".join(row["nearest_words"])))
    return table
