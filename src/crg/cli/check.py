"""``crg check``: does a method of your own keep to what is asked of every method?"""

from __future__ import annotations

import inspect

import click

from crg.checks import Verdict, iter_checks
from crg.cli.shared import note
from crg.methods.registry import get_method
from crg.plugins import load_plugin, resolved
from crg.types import printable

_FAILED = 1  # exit code


@click.command()
@click.argument("sources", nargs=-1, required=True, metavar="FILE_OR_MODULE...")
def check(sources: tuple[str, ...]) -> None:
    """Check methods of your own: a line for each check that fails, with file and line.

    Each method that a file or module registers is checked. Exit code 1 if any check fails.

    \b
    Example:
      crg check my_method.py
    """
    methods = [(source, name) for source in sources for name in load_plugin(source)]
    if sum(_failures(source, name) for source, name in methods):
        click.get_current_context().exit(_FAILED)


def _failures(source: str, name: str) -> int:
    """Check one method and print what failed; how many checks did."""
    file = inspect.getfile(get_method(name))
    place = source if file == resolved(source) else file
    verdicts: list[Verdict] = []
    for verdict in iter_checks(name):
        verdicts.append(verdict)
        if verdict.failed:
            said = " ".join(printable(verdict.failed).split())
            click.echo(f"{place}:{verdict.line}: {name} fails {verdict.check}: {said}")
        if verdict.skipped:
            note(f"{verdict.check} was not run. {verdict.skipped}")
    failed = sum(bool(verdict.failed) for verdict in verdicts)
    passed = sum(not (verdict.failed or verdict.skipped) for verdict in verdicts)
    click.echo(f"{name}: {passed} checks passed, {failed} failed.")
    return failed
