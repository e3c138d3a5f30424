"""``crg methods``: list the methods and their options."""

from __future__ import annotations

import dataclasses
from typing import Any

import click
from rich.table import Table
from rich.text import Text

from crg.cli.shared import output, plugin_option, print_json
from crg.methods.registry import get_method, list_methods
from crg.presets import presets_of


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
