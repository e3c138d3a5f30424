"""``crg methods``: list the methods and their options, or check methods of your own."""

from __future__ import annotations

import dataclasses
import inspect
from typing import Any

import click
from rich.table import Table
from rich.text import Text

from crg.checks import iter_checks
from crg.cli.shared import json_option, note, output, plugin_option, print_json
from crg.methods.options import limits_of
from crg.methods.registry import get_method, list_methods
from crg.plugins import load_plugin, resolved
from crg.presets import presets_of
from crg.types import printable

_FAILED = 1  # exit code


@click.command()
@click.argument("words", metavar="[NAME | check FILE...]", nargs=-1)
@json_option
@plugin_option
@click.pass_context
def methods(ctx: click.Context, words: tuple[str, ...], as_json: bool) -> None:
    """List the methods with their options, describe one, or check your own.

    check runs the generic checks on each method that a Python file or module registers, and
    prints a line for each that fails, with file and line; its exit code is then 1.

    \b
    Example:
      crg methods
      crg methods crg
      crg methods check my_method.py
    """
    match words:
        case ["check", *sources]:
            if as_json or not sources:
                raise click.UsageError("crg methods check takes files and no options")
            own = [(source, name) for source in sources for name in load_plugin(source)]
            ctx.exit(_FAILED if sum(_failures(*each) for each in own) else 0)
        case [] | [_]:
            _describe(words[0] if words else None, as_json)
        case _:
            raise click.UsageError("crg methods takes one name")


def _failures(source: str, name: str) -> int:
    """Check one method and print the checks that fail; returns how many."""
    file = inspect.getfile(get_method(name))
    place = source if file == resolved(source) else file
    n_failed = n_passed = 0
    for verdict in iter_checks(name):
        if verdict.failed:
            said = " ".join(printable(verdict.failed).split())
            click.echo(f"{place}:{verdict.line}: {name} fails {verdict.check}: {said}")
            n_failed += 1
        elif verdict.skipped:
            note(f"{verdict.check} was not run. {verdict.skipped}")
        else:
            n_passed += 1
    click.echo(f"{name}: {n_passed} checks passed, {n_failed} failed.")
    return n_failed


def _describe(name: str | None, as_json: bool) -> None:
    """Print one method with its options, or a table of all."""
    facts = [_facts(each) for each in ([name] if name else list_methods())]
    if as_json:
        print_json({"methods": facts})
        return
    console = output()
    if name:
        [fact] = facts
        console.print(Text(f"{name}: {fact['paper']}"), _options_table(fact["options"]), sep="\n")
        for title, names in (("It needs", "needs"), ("Presets, chosen with labels", "presets")):
            if fact[names]:
                console.print(Text(f"{title}: {', '.join(fact[names])}."))
        return
    table = Table("method", "paper", "needs", "options and defaults", show_lines=True)
    for fact in facts:
        needs = "\n".join(fact["needs"]) or "-"
        options = [f"{each['name']}={_shown(each['default'])}" for each in fact["options"]]
        cells = (fact["name"], fact["paper"], needs, ", ".join(options) or "none")
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
        "options": [
            {"name": field.name, "default": field.default}
            | {key: rule for key, rule in field.metadata.items() if rule not in (None, (), False)}
            for field in dataclasses.fields(kind.Config)
        ],
    }


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
    return ", ".join(option.get("choices", ())) or limits_of(option)
