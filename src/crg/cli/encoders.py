"""``crg encoders``: list the models, export one for ONNX Runtime, or import a graph."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import click
from rich.table import Table
from rich.text import Text

from crg.atomic import locked_folder
from crg.cli.shared import POSITIVE, json_option, note, options, output, print_json
from crg.encoders import list_encoders, problem_with

_HINTS = (
    "crg encoders PATTERN lists the other models of open_clip, such as vit-b-16.",
    "--model MODEL:FILE takes the weights from a checkpoint file.",
    "--model hf:FOLDER takes a CLIP or SigLIP model of Hugging Face from a folder.",
    "--model onnx:FOLDER takes a model that crg encoders export or import wrote, without torch.",
)
_IMPORT = options(
    click.option("--size", type=POSITIVE, help="With import: S, where the graph leaves it open."),
    click.option("--mean", type=float, nargs=3, help="With import.  [default: CLIP's]"),
    click.option("--std", type=float, nargs=3, help="With import.  [default: CLIP's]"),
    click.option("--output", help="With import: the output that holds the features."),
)  # fmt: skip


@click.command()
@click.argument("words", metavar="[PATTERN | export MODEL | import GRAPH]", nargs=-1)
@click.option("--out", type=click.Path(path_type=Path),
              help="With export and import: the folder to make.")  # fmt: skip
@click.option("--int8", is_flag=True,
              help="With export: 8-bit image weights, for processors without a GPU.")  # fmt: skip
@_IMPORT
@json_option
def encoders(
    words: tuple[str, ...], out: Path | None, int8: bool, as_json: bool, **given: Any
) -> None:
    """List the models that turn images and texts into features, export or import one.

    With a PATTERN, list all models and weights of open_clip whose name it matches. export writes
    a model of open_clip for ONNX Runtime, and checks that both give the same features. import
    makes a folder from your own ONNX graph, from normalised pixels (B, 3, S, S) to features; if
    images are not scaled and cropped as CLIP's are, correct fit and interpolation in encoder.json,
    which also has the logit scale, 100.

    \b
    Example:
      crg encoders
      crg encoders vit-b-16
      crg encoders export ViT-B-16 --out vit-b-16
      crg encoders import image.onnx --size 224 --out my-tower
    """
    given = {name: value for name, value in given.items() if value is not None}
    match words:
        case ["export", model] if out is not None and not given:
            _export(model, out, int8, as_json)
        case ["export", *_]:
            raise click.UsageError("crg encoders export takes one model, --out FOLDER and --int8")
        case ["import", graph] if out is not None and not int8:
            _import(graph, out, given, as_json)
        case ["import", *_]:
            raise click.UsageError("crg encoders import takes one graph and --out FOLDER")
        case _ if out is not None or int8 or given:
            raise click.UsageError("These options belong to crg encoders export and import")
        case [] | [_]:
            _list(words[0] if words else None, as_json)
        case _:
            raise click.UsageError("crg encoders takes one pattern")


def _list(pattern: str | None, as_json: bool) -> None:
    rows = list_encoders(pattern)
    if problem := problem_with("open_clip", "openclip"):
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


def _import(graph: str, out: Path, given: dict[str, Any], as_json: bool) -> None:
    from crg.encoders.export import import_graph

    with locked_folder(out):
        made = import_graph(graph, out, **given)
    if as_json:
        print_json(made)
        return
    click.echo(
        f"Wrote {out}: the output {made['output']} of {graph} gives features {made['width']} wide, "
        f"for {made['batch'] or 'any number of'} images at once"
        f"{'; in 8 bits, so one at a time' if made['int8'] else ''}: "
        f"use --model {made['name']} with --text-features FILE."
    )


def _export(model: str, out: Path, int8: bool, as_json: bool) -> None:
    from crg.encoders.export import export

    with locked_folder(out):
        done = export(model, out, int8)
    if as_json:
        print_json(done)
        return
    click.echo(
        f"Wrote {out} ({done['size'] / 1e6:.0f} MB), whose unit features differ by at most "
        f"{done['image_difference']:.0e} for images and {done['text_difference']:.0e} for texts: "
        f"use --model {done['name']}."
    )
