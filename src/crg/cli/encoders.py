"""``crg encoders`` and ``crg export``: what can encode, and a model for ONNX Runtime."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import click
from rich.table import Table
from rich.text import Text

from crg.atomic import locked_folder
from crg.cli.shared import note, output, print_json
from crg.encoders import EncoderRow, list_encoders, open_clip_problem
from crg.encoders.export import Exported
from crg.encoders.export import export as export_model


@click.command()
@click.argument("pattern", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def encoders(pattern: str | None, as_json: bool) -> None:
    """List the models that turn images and texts into features.

    With a PATTERN, list all models and weights of open_clip whose name it matches.

    \b
    Example:
      crg encoders
      crg encoders vit-b-16
    """
    rows = list_encoders(pattern)
    if problem := open_clip_problem():
        note(f"The models of open_clip cannot be used: {problem[0].lower()}{problem[1:]}")
    if as_json:
        print_json({"encoders": [dataclasses.asdict(row) for row in rows]})
        return
    console = output()
    console.print(_table(rows))
    if pattern is None:
        console.print("crg encoders PATTERN lists the other models of open_clip, such as vit-b-16.")
        console.print("--model MODEL:FILE takes the weights from a checkpoint file.")
        console.print(
            "--model hf:FOLDER takes a CLIP or SigLIP model of Hugging Face from a folder."
        )
        console.print("--model onnx:FOLDER takes a model that crg export wrote, without torch.")


def _table(rows: list[EncoderRow]) -> Table:
    table = Table("--model", "weights", "on this machine", "to install")
    for row in rows:
        here = {True: "yes", False: "no", None: ""}[row.here]
        extra = f"pip install '.[{row.needs}]'" if row.needs else ""
        table.add_row(Text(row.name), Text(row.source), here, Text(extra))
    return table


@click.command()
@click.argument("model")
@click.option("--out", required=True, type=click.Path(path_type=Path), help="The folder to make.")
@click.option("--force", is_flag=True, help="Replace a model that was exported there before.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def export(model: str, out: Path, force: bool, as_json: bool) -> None:
    """Write a model of open_clip for ONNX Runtime, and check that both agree.

    \b
    Example:
      crg export ViT-B-16 --out vit-b-16
      crg encode shapes --model onnx:vit-b-16 --out store
    """
    with locked_folder(out):
        done = export_model(model, out, force=force)
    if as_json:
        print_json({**dataclasses.asdict(done), "folder": str(done.folder)})
    else:
        click.echo(_sentence(done))


def _sentence(done: Exported) -> str:
    return (
        f"Wrote {done.folder} ({done.size / 1e6:.0f} MB), whose unit features differ by at most "
        f"{done.image_difference:.0e} for images and {done.text_difference:.0e} for texts: "
        f"use --model {done.name}."
    )
