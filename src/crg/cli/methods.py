"""``crg methods``: what there is to choose from, and what can be set."""

from __future__ import annotations

import dataclasses
from typing import Any

import click
from rich.table import Table
from rich.text import Text

from crg.cli.shared import output, plugin_option, print_json
from crg.methods.registry import get_method, list_methods


@click.command()
@click.argument("name", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@plugin_option
def methods(name: str | None, as_json: bool) -> None:
    """List the methods, or the options of one of them.

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
        return
    table = Table("method", "paper")
    for fact in facts:
        table.add_row(Text(fact["name"]), Text(fact["paper"]))
    console.print(table)
    console.print("crg methods NAME shows the options of one method.")


def _facts(name: str) -> dict[str, Any]:
    kind = get_method(name)
    return {
        "name": name,
        "paper": kind.paper,
        "options": [_option(field) for field in dataclasses.fields(kind.Config)],
    }


def _option(field: dataclasses.Field[Any]) -> dict[str, Any]:
    rules = {key: value for key, value in field.metadata.items() if value not in (None, ())}
    return {"name": field.name, "default": field.default, **rules}


def _options_table(options: list[dict[str, Any]]) -> Table | str:
    if not options:
        return "It has no options."
    table = Table("option", "default", "allowed", "meaning")
    for option in options:
        default = option["default"]
        shown = str(default).lower() if isinstance(default, bool) else str(default)
        table.add_row(option["name"], shown, _allowed(option), Text(option.get("help", "")))
    return table


def _allowed(option: dict[str, Any]) -> str:
    if isinstance(option["default"], bool):
        return "true, false"
    if "choices" in option:
        return ", ".join(option["choices"])
    words = {"at_least": "at least", "above": "above", "at_most": "at most"}
    return ", ".join(f"{words[rule]} {option[rule]}" for rule in words if rule in option)
