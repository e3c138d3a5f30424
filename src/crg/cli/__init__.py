"""The ``crg`` command. No logic lives here: commands read input, call the library and print.

A command is imported when it is called, so that ``crg --help`` is there at once. The list below
has what help shows of each; a test compares it with the commands themselves.
"""

from __future__ import annotations

import importlib

import click

import crg
from crg.cli.shared import CommandGroup, load_environment_plugins, plugin_option
from crg.suggest import nearest

COMMANDS = {  # as help lists them
    "predict": "Say what images show, adapting as it goes; one line per image.",
    "review": "Show what crg predict has answered on a page where labels can be corrected.",
    "serve": "Serve sessions over HTTP, with a page to watch them live.",
    "demo": "Render shifted images, encode them with the bundled model, and compare the methods.",
    "encode": "Encode the images of a dataset once, for every run to read.",
    "compare": "Compare methods on feature files: mean and spread over stream orders.",
    "bench": "Run the experiment in a TOML file on the data that is available.",
    "report": "Show the results of crg bench: RESULTS are its files, or folders of them.",
    "methods": "List the methods with their options, describe one, or check your own.",
    "encoders": "List the models that turn images and texts into features, export or import one.",
    "datasets": "List the datasets, describe one, or check one on disk.",
}


class LazyGroup(CommandGroup):
    """A group that imports a command when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names of all commands, in the order of the help."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of this name; None if there is none."""
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = getattr(importlib.import_module(f"crg.cli.{cmd_name}"), cmd_name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that is meant; a misspelt one is refused with the nearest."""
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            from crg.types import InputError

            hint = nearest(args[0], COMMANDS, "crg --help lists them.")
            raise InputError(f"There is no command {args[0]!r}: {hint}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list of commands, from the table above."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(cls=LazyGroup)
@click.version_option(crg.__version__, prog_name="crg")
@plugin_option
def main() -> None:
    """Test-time adaptation for CLIP-like models, from images or stored features.

    \b
    Example:
      crg demo
      crg predict photos/ --classes "cat,dog,fox" --model ViT-B-16
      crg compare features.npz --methods zero_shot,tda,crg,anchored --orders 5

    A method of your own works everywhere a built-in one does: decorate its class with
    @crg.register and name its file with --plugin (or in the variable CRG_PLUGINS).
    """
    load_environment_plugins()
