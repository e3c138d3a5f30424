"""``crg encoders``: list the models, or export one for ONNX Runtime."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import click
from rich.table import Table
from rich.text import Text

from crg.atomic import locked_folder
from crg.cli.shared import json_option, note, output, print_json
from crg.encoders import list_encoders, open_clip_problem

_HINTS = (
    "crg encoders PATTERN lists the other models of open_clip, such as vit-b-16.",
    "--model MODEL:FILE takes the weights from a checkpoint file.",
    "--model hf:FOLDER takes a CLIP or SigLIP model of Hugging Face from a folder.",
    "--model onnx:FOLDER takes a model that crg encoders export wrote, without torch.",
)


@click.command()
@click.argument("words", metavar="[PATTERN | export MODEL]", nargs=-1)
@click.option("--out", type=click.Path(path_type=Path), help="With export: the folder to make.")
@json_option
def encoders(words: tuple[str, ...], out: Path | None, as_json: bool) -> None:
    """List the models that turn images and texts into features, or export one.

    With a PATTERN, list all models and weights of open_clip whose name it matches. export writes
    a model of open_clip for ONNX Runtime, and checks that both give the same features.

    \b
    Example:
      crg encoders
      crg encoders vit-b-16
      crg encoders export ViT-B-16 --out vit-b-16
    """
    match words:
        case ["export", model] if out is not None:
            _export(model, out, as_json)
        case ["export", *_]:
            raise click.UsageError("crg encoders export takes one model and --out FOLDER")
        case _ if out is not None:
            raise click.UsageError("--out belongs to crg encoders export MODEL")
        case [] | [_]:
            _list(words[0] if words else None, as_json)
        case _:
            raise click.UsageError("crg encoders takes one pattern")


def _list(pattern: str | None, as_json: bool) -> None:
    rows = list_encoders(pattern)
    if problem := open_clip_problem():
        note(f"The models of open_clip cannot be used: {problem[0].lower()}{problem[1:]}")
    if as_json:
        print_json({"encoders": [dataclasses.asdict(row) for row in rows]})
        return
    table = Table("--model", "weights", "on this machine", "to install")
    for row in rows:
        here = {True: "yes", False: "no", None: ""}[row.here]
        extra = f"pip install -e '.[{row.needs}]'" if row.needs else ""
        table.add_row(Text(row.name), Text(row.source), here, Text(extra))
    output().print(table, *(_HINTS if pattern is None else ()), sep="\n")


def _export(model: str, out: Path, as_json: bool) -> None:
    from crg.encoders.export import export

    with locked_folder(out):
        done = export(model, out)
    if as_json:
        print_json({**dataclasses.asdict(done), "folder": str(done.folder)})
        return
    click.echo(
        f"Wrote {done.folder} ({done.size / 1e6:.0f} MB), whose unit features differ by at most "
        f"{done.image_difference:.0e} for images and {done.text_difference:.0e} for texts: "
        f"use --model {done.name}."
    )
