"""``crg methods``: what there is to choose from; ``crg context``: what one of them learnt."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
from rich.table import Table
from rich.text import Text

from crg.cli.shared import output, plugin_option, print_json
from crg.encoders import load_text_encoder
from crg.methods.registry import get_method, list_methods
from crg.parts.context import Context, check_fit, read_context
from crg.parts.prompting import as_tensor
from crg.presets import presets_of
from crg.resources import PromptableTextEncoder


@click.command()
@click.argument("name", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@plugin_option
def methods(name: str | None, as_json: bool) -> None:
    """List the methods with their options and defaults, or tell more of one of them.

    \b
    Example:
      crg methods
      crg methods crg
    """
    facts = [_facts(each) for each in ([name] if name else list_methods())]
    if as_json:
        print_json({"methods": facts})
        return
    console = output()
    if name:
        console.print(Text(f"{name}: {facts[0]['paper']}"))
        console.print(_options_table(facts[0]["options"]))
        if facts[0]["needs"]:
            console.print(Text(f"It needs: {', '.join(facts[0]['needs'])}."))
        if facts[0]["presets"]:
            console.print(Text(f"Presets, chosen with labels: {', '.join(facts[0]['presets'])}."))
        return
    table = Table("method", "paper", "needs", "options and defaults", show_lines=True)
    for fact in facts:
        needs = "\n".join(fact["needs"]) or "-"
        cells = (fact["name"], fact["paper"], needs, _defaults(fact["options"]))
        table.add_row(*(Text(cell) for cell in cells))
    console.print(table)
    console.print("crg methods NAME says what the options of one method mean and allow.")


def _facts(name: str) -> dict[str, Any]:
    kind = get_method(name)
    return {
        "name": name,
        "paper": kind.paper,
        "needs": list(kind.needs),
        "presets": list(presets_of(name)),
        "options": [_option(field) for field in dataclasses.fields(kind.Config)],
    }


def _option(field: dataclasses.Field[Any]) -> dict[str, Any]:
    rules = {key: value for key, value in field.metadata.items() if value not in (None, ())}
    return {"name": field.name, "default": field.default, **rules}


def _defaults(options: list[dict[str, Any]]) -> str:
    return (
        ", ".join(f"{option['name']}={_shown(option['default'])}" for option in options) or "none"
    )


def _shown(default: Any) -> str:
    return str(default).lower() if isinstance(default, bool) else str(default)


def _options_table(options: list[dict[str, Any]]) -> Table | str:
    if not options:
        return "It has no options."
    table = Table("option", "default", "allowed", "meaning")
    for option in options:
        words = _allowed(option), Text(option.get("help", ""))
        table.add_row(option["name"], _shown(option["default"]), *words)
    return table


def _allowed(option: dict[str, Any]) -> str:
    if isinstance(option["default"], bool):
        return "true, false"
    if "choices" in option:
        return ", ".join(option["choices"])
    words = {"at_least": "at least", "above": "above", "at_most": "at most"}
    return ", ".join(f"{words[rule]} {option[rule]}" for rule in words if rule in option)


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
      crg compare night --methods coop --few labelled -o save_context=night.context
      crg context night.context
    """
    learnt = read_context(file)
    encoder = load_text_encoder(learnt.model)
    check_fit(learnt, encoder, str(file))
    rows = list(_nearest_rows(learnt, encoder, words))
    if as_json:
        print_json({**_context_facts(learnt), "vectors": rows})
        return
    console = output()
    console.print(Text(_context_sentence(learnt)))
    console.print(_nearest_table(learnt, rows))


def _context_facts(learnt: Context) -> dict[str, Any]:
    return {
        "model": learnt.model,
        "shape": list(learnt.vectors.shape),
        "classes": list(learnt.class_names),
        "started_from": learnt.words or None,
    }


def _context_sentence(learnt: Context) -> str:
    *_, length, width = learnt.vectors.shape
    whose = f"for each of {len(learnt.class_names)} classes" if learnt.class_names else "shared"
    start = f"from {learnt.words!r}" if learnt.words else "at random"
    return (
        f"{length} vectors of width {width}, {whose}, for {learnt.model}; training began {start}."
    )


def _nearest_rows(
    learnt: Context, encoder: PromptableTextEncoder, count: int
) -> Iterator[dict[str, Any]]:
    """One for each vector, class by class."""
    sets = learnt.vectors if learnt.class_names else learnt.vectors[None]
    reference = encoder.context_of("a")
    for name, vectors in zip(learnt.class_names or (None,), sets, strict=True):
        found = encoder.nearest_words(as_tensor(vectors, reference), count)
        for place, nearest in enumerate(found, start=1):
            yield {"class": name, "vector": place, "nearest_words": nearest}


def _nearest_table(learnt: Context, rows: list[dict[str, Any]]) -> Table:
    first = ["class"] if learnt.class_names else []
    table = Table(*first, "vector", "nearest words")
    for row in rows:
        name = [Text(row["class"])] if learnt.class_names else []
        table.add_row(*name, str(row["vector"]), Text(", ".join(row["nearest_words"])))
    return table
