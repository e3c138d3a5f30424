"""Shared by the commands: refusals, options, plug-ins and places to print.

``crg --help`` loads this module, so whatever takes time to import is imported where it is used.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import io
import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import click

if TYPE_CHECKING:
    from rich.console import Console

    from crg.results.ledger import Ledger

INTERRUPTED = 130  # what shells report for a program that Ctrl-C ended
_LOADED = "crg.plugins"
_PIPE_WIDTH = 200  # wide enough that no table is wrapped in a file

F = TypeVar("F", bound=Callable[..., Any])
FILE = click.Path(path_type=Path, dir_okay=False)
FOLDER = click.Path(path_type=Path, file_okay=False)
POSITIVE = click.IntRange(min=1)


class Refused(click.ClickException):
    """Bad input: one sentence on stderr and exit code 2."""

    exit_code = 2

    def format_message(self) -> str:
        """The sentence, without anything that a terminal might obey."""
        from crg.types import printable

        return printable(self.message)


@contextlib.contextmanager
def refusing() -> Iterator[None]:
    """Turn the library's complaint about input into a refusal."""
    try:
        yield
    except ValueError as error:
        from crg.types import InputError

        if not isinstance(error, InputError):
            raise
        raise Refused(str(error)) from None


@contextlib.contextmanager
def heeding_interrupts() -> Iterator[None]:
    """Repeat a Ctrl-C that arrives in a destructor, where Python prints and forgets it."""

    def hook(ignored: sys.UnraisableHookArgs) -> None:
        if issubclass(ignored.exc_type, KeyboardInterrupt):
            again = threading.Timer(0.01, os.kill, (os.getpid(), signal.SIGINT))  # not in here
            again.daemon = True
            again.start()
        else:
            before(ignored)

    before, sys.unraisablehook = sys.unraisablehook, hook
    try:
        yield
    finally:
        sys.unraisablehook = before


class CommandGroup(click.Group):
    """A group whose commands refuse bad input and stop quietly on Ctrl-C."""

    def main(self, *args: Any, standalone_mode: bool = True, **more: Any) -> Any:
        """Run as a program: Ctrl-C outside of the command, too, ends it as shells expect."""
        run: Any = super().main  # click says that it never returns
        try:
            result = run(*args, standalone_mode=False, **more)
        except click.ClickException as error:
            if not standalone_mode:
                raise
            error.show()
            sys.exit(error.exit_code)
        except click.Abort:
            sys.exit(INTERRUPTED)
        return sys.exit(result) if standalone_mode else result

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command. Names of files pass through as bytes, in UTF-8 or not."""
        if sys.stdout is None:  # a file that is opened next would get what is printed
            raise Refused("Standard output is closed: send it to a file or to /dev/null.")
        for stream in (sys.stdin, sys.stdout):
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(errors="surrogateescape")
        try:
            with refusing(), heeding_interrupts():
                result = super().invoke(ctx)
                sys.stdout.flush()
                return result
        except BrokenPipeError:  # the reader, such as head, has seen enough
            with contextlib.suppress(OSError):  # so that the rest is not written at exit
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            ctx.exit(0)
        except click.UsageError as error:
            where = error.ctx.command_path if error.ctx else ctx.command_path
            if isinstance(error, click.NoSuchOption):  # click offers names that are not near
                from crg.suggest import nearest

                hint = nearest(error.option_name, error.possibilities or (), f"see {where} --help.")
                raise Refused(f"There is no option {error.option_name}: {hint}") from None
            message = error.format_message().rstrip(".")
            raise Refused(f"{message}: see {where} --help.") from None
        except KeyboardInterrupt:
            click.echo("Stopped.", err=True)
            ctx.exit(INTERRUPTED)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            raise Refused(
                f"The output cannot be written ({error.strerror}): make room there."
            ) from None


def _load(ctx: click.Context, _: click.Parameter | None, sources: tuple[str, ...]) -> None:
    if not sources:
        return
    from crg.plugins import load_plugin, resolved

    with refusing():
        for source in sources:
            load_plugin(source)
    ctx.meta.setdefault(_LOADED, {}).update(dict.fromkeys(map(resolved, sources)))


def options(*given: Callable[[F], F]) -> Callable[[F], F]:
    """Several options, in the order of the help."""

    def add(command: F) -> F:
        for option in reversed(given):
            command = option(command)
        return command

    return add


def options_of(config: type[Any], *names: str) -> Callable[[F], F]:
    """An option for each field of a dataclass that has help, or for the fields ``names`` only."""
    hints = get_type_hints(config)
    chosen = [each for each in dataclasses.fields(config) if "help" in each.metadata]
    return options(*(_option(each, hints[each.name]) for each in chosen
                     if not names or each.name in names))  # fmt: skip


def _option(field: dataclasses.Field[Any], hint: Any) -> Callable[[F], F]:
    """The option that sets a field, with its default, type, limits and help."""
    facts, default = field.metadata, field.default
    parts = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)  # X | None
    kind = parts[0] if len(parts) < 3 else str
    how = {"help": facts["help"], "metavar": facts.get("metavar"), "default": default}
    if kind is bool:
        how["is_flag"] = True
    elif isinstance(default, tuple):
        how["multiple"] = True
    else:
        how |= {"type": _type(kind, facts), "show_default": default is not None}
    if "alone" in facts:  # its value where none is given
        how |= {"is_flag": False, "flag_value": facts["alone"]}
    if "read" in facts:
        how["callback"] = lambda _, option, value: facts["read"](value, option.opts[0])
    return click.option(facts.get("flag", f"--{field.name.replace('_', '-')}"), field.name, **how)


def _type(kind: Any, facts: Mapping[str, Any]) -> Any:
    if get_origin(kind) is Literal:
        return click.Choice(get_args(kind))
    if kind is Path:
        return FOLDER if facts.get("metavar") == "DIR" else FILE
    limits = facts.get("at_least"), facts.get("at_most")
    ranged = {int: click.IntRange, float: click.FloatRange}.get(kind)
    return ranged(*limits) if ranged and limits != (None, None) else kind


plugin_option = click.option(
    "--plugin", multiple=True, expose_value=False, is_eager=True, callback=_load,
    metavar="FILE_OR_MODULE",
    help="Load a method of your own; may be repeated. Also: the variable CRG_PLUGINS.",
)  # fmt: skip
few_option = click.option("--few", metavar="FILE", help="Labelled images for few-shot methods: a "
                          "feature file or store of the same classes.")  # fmt: skip
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
model_options = options(
    click.option("--text-features", metavar="FILE", help="File with class_names and "
                 "text_features, in place of the model's text encoder."),
    click.option("--device", help="cpu, cuda, mps.  [default: the fastest there is]"),
)  # fmt: skip
address_option = click.option(
    "--address", help="Ray cluster to use.  [default: one on this machine]"
)


def load_environment_plugins() -> None:
    """Load what CRG_PLUGINS names, separated as in PATH."""
    named = os.environ.get("CRG_PLUGINS", "").split(os.pathsep)
    _load(click.get_current_context(), None, tuple(filter(None, named)))


def loaded_plugins() -> tuple[str, ...]:
    """The plug-ins of this call, for worker processes and for the record."""
    return tuple(click.get_current_context().meta.get(_LOADED, ()))


def output() -> Console:
    """Where results go: as wide as the terminal, or never wrapped in a file."""
    from rich.console import Console

    class Output(Console):
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError  # which ends every command alike

    return Output(width=None if sys.stdout.isatty() else _PIPE_WIDTH, highlight=False)


def print_json(value: Any) -> None:
    """One JSON object on stdout."""
    click.echo(json.dumps(value, indent=2, allow_nan=False))


def note(sentence: str) -> None:
    """A remark on stderr that does not stop anything."""
    from crg.types import printable

    click.echo(f"Note: {printable(sentence)}", err=True)


def open_results(path: Path) -> Ledger:
    """A results file to add to, with a note on each line that cannot be used."""
    from crg.atomic import make_folder
    from crg.results import ledger

    make_folder(path.parent, "--results")
    known = ledger.read(path)
    known.check_writable()
    for sentence in known.notes():
        note(sentence)
    return known
