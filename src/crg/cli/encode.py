"""``crg encode``: images become features, kept in a store."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from pathlib import Path
from typing import Any

import click

from crg.cli import shared
from crg.cli.progress import shown_encoding
from crg.datasets import SHAPES, load_dataset
from crg.datasets.catalog import SPLITS, TEST
from crg.encoding import EncodingSummary, Wording
from crg.encoding import encode as run_encoding
from crg.encoding.job import Run
from crg.encoding.variations import Variations
from crg.features.files import load_with_classes
from crg.images.views import Recipe
from crg.types import InputError, counted

_SHOWN = 20  # images that were left out
_PATH = click.Path(path_type=Path)
_OPTIONS = shared.options(
    click.option("--root", type=_PATH,
                 help="Folder that holds the datasets of the catalogue."),
    click.option("--split", default=TEST, show_default=True, type=click.Choice(SPLITS),
                 help="Which images of a dataset of the catalogue."),
    click.option("--limit", type=shared.POSITIVE,
                 help="Encode only this many images, drawn at random."),
    click.option("--shots", type=shared.POSITIVE,
                 help="Encode at most this many images of each class, drawn at random."),
    shared.options_of(Recipe),
    click.option("--variations", type=_PATH,
                 help="Folder with a folder of generated variations for each image, "
                      "which are added as the last views."),
    click.option("--generated", type=shared.POSITIVE, metavar="G",
                 help="How many variations of each image are added."),
    click.option("--model", default="mini", show_default=True,
                 help="Encoder; crg encoders lists them."),
    shared.model_options,
    click.option("--precision", help="fp32, fp16 or bf16.  [default: as suits the device]"),
    click.option("--template", "templates", multiple=True, metavar="TEXT",
                 help="Prompt with {} for the class; may be repeated.  "
                      "[default: the dataset's own]"),
    click.option("--descriptions", type=_PATH,
                 help="JSON file with sentences for each class, in place of templates or, "
                      "with --template, beside them."),
    click.option("--batch", default=256, show_default=True, type=shared.POSITIVE,
                 help="Views that are encoded at once."),
    click.option("--workers", type=shared.POSITIVE,
                 help="Threads that make views, or Ray actors.  [default: one per processor]"),
    click.option("--engine", default="local", show_default=True,
                 type=click.Choice(["local", "ray"]), help="Where to encode."),
    shared.address_option,
)  # fmt: skip


@click.command()
@click.argument("dataset")
@click.option("--out", required=True, type=click.Path(path_type=Path),
              help="Folder of the store; may be new, or one to continue with.")  # fmt: skip
@shared.json_option
@_OPTIONS
def encode(dataset: str, out: Path, as_json: bool, **given: Any) -> None:
    """Encode the images of a dataset once, for every run to read.

    DATASET is a name that crg datasets lists, shapes, shapes:SHIFT:SEVERITY, a folder with one
    folder per class, or a CSV file with a path and a label per line. The job can be stopped and
    even killed: the same command continues where it stopped, and checks a store that is finished.
    Images that cannot be read are left out and listed.

    \b
    Example:
      crg encode shapes:night:3 --model mini --views 16 --limit 500 --out night
      crg encode dtd --root ~/data --model ViT-B-16 --views 64 --out dtd-store
      crg encode dtd --root ~/data --split train --shots 16 --out dtd-labelled
      crg encode dtd --root ~/data --variations dtd-made --generated 8 --out dtd-generated
    """
    if dataset == SHAPES and Path(dataset).is_dir():
        shared.note(f"{dataset} is a dataset of this name; for the folder write ./{dataset}.")
    summary = _encoded(dataset, out, given)
    if as_json:
        skipped = [{"id": name, "reason": reason} for name, reason in summary.skipped]
        plain = {**dataclasses.asdict(summary), "folder": str(summary.folder)}
        shared.print_json({**plain, "skipped": skipped})
    else:
        _print(summary)


def _encoded(name: str, out: Path, given: dict[str, Any]) -> EncodingSummary:
    def some(*names: str) -> dict[str, Any]:
        return {key: given[key] for key in names}

    folder, count = given["variations"], given["generated"]
    if (folder is None) != (count is None):
        raise InputError("--variations and --generated belong together: give both or neither.")
    images = load_dataset(name, **some("root", "split", "limit", "shots", "seed"))
    model = some("text_features", "device", "precision")
    load = functools.partial(load_with_classes, given["model"], **model)
    try:
        with contextlib.ExitStack() as stack:
            return run_encoding(
                images,
                load(),
                Recipe(**some("views", "augment", "seed")),
                out,
                wording=Wording(**some("templates", "descriptions")),
                variations=None if folder is None else Variations(folder, count),
                run=_run_on(given["engine"], load=load, **some("address", "workers")),
                on_progress=shown_encoding(stack),
                on_note=shared.note,
                **some("batch", "workers"),
            )
    except KeyboardInterrupt:
        kept = f"what was encoded is kept in {out}"
        click.echo(f"Stopped: {kept}, and the same command continues from there.", err=True)
        click.get_current_context().exit(shared.INTERRUPTED)


def _run_on(engine: str, **options: Any) -> Run | None:
    if engine == "ray":
        from crg.engine.ray import encode_on_ray

        return functools.partial(encode_on_ray, **options)
    if options["address"] is not None:
        raise InputError("Only Ray has an --address: add --engine ray or leave it out.")
    return None


def _print(summary: EncodingSummary) -> None:
    click.echo(
        f"{summary.folder} is finished: {counted(summary.n_images, 'image')}, "
        f"{counted(summary.n_views, 'view')} each, {summary.width} wide."
    )
    if summary.skipped:
        number = counted(len(summary.skipped), "image")
        click.echo(f"Left out {number} that could not be read (delete the store to try again):")
    for name, reason in summary.skipped[:_SHOWN]:
        click.echo(f"  {name}: {reason}")
    if len(summary.skipped) > _SHOWN:
        click.echo(f"  and {len(summary.skipped) - _SHOWN} more, all listed in store.json")
