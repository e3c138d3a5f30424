"""``crg export``: a model of open_clip as a folder for ONNX Runtime."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import click

from crg.cli.shared import print_json
from crg.encoders.export import Exported
from crg.encoders.export import export as export_model


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
