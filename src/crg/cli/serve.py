"""``crg serve``: sessions over HTTP, and a page to watch them."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from functools import partial
from pathlib import Path
from typing import Any

import click

from crg.cli.shared import F, loaded_plugins, note, plugin_option
from crg.encoders import load_encoder
from crg.extras import library
from crg.prompts import PHOTO, check_template
from crg.types import InputError

for _name in ("fastapi", "httptools", "prometheus_client", "python_multipart", "uvicorn"):
    library(_name, "server")

from crg.server.app import create_app  # noqa: E402  (needs what is checked above)
from crg.server.cluster import ClusterService, open_cluster  # noqa: E402
from crg.server.limits import Limits  # noqa: E402
from crg.server.main import serve as run  # noqa: E402
from crg.server.replicas import ReplicaService, open_processes  # noqa: E402
from crg.server.security import check_address  # noqa: E402
from crg.server.service import Service, Settings  # noqa: E402


def limit_options(command: F) -> F:
    """One option for each limit."""
    for field in reversed(dataclasses.fields(Limits)):
        command = click.option(
            f"--{field.name.replace('_', '-')}",
            type=click.IntRange(min=field.metadata["at_least"]),
            default=field.default,
            show_default=True,
            help=field.metadata["help"],
        )(command)
    return command


@click.command()
@click.option("--model", default="mini", show_default=True, metavar="NAME",
              help="As `crg encoders` lists them.")  # fmt: skip
@click.option("--device", help="cpu, cuda, mps.  [default: the fastest there is]")
@click.option("--precision", help="fp32, fp16 or bf16.  [default: what suits the device]")
@click.option("--template", "templates", multiple=True, metavar="TEXT",
              help=f"Prompt with {{}} for the class; may be repeated.  "
                   f"[default: {PHOTO}]")  # fmt: skip
@click.option("--data", default="sessions", show_default=True, metavar="FOLDER",
              type=click.Path(path_type=Path, file_okay=False),
              help="Folder in which sessions are kept.")  # fmt: skip
@click.option("--host", default="127.0.0.1", show_default=True,
              help="Address to listen on; any but this machine's own needs CRG_TOKEN.")  # fmt: skip
@click.option("--port", default=8000, show_default=True, type=click.IntRange(0, 65535),
              help="Port to listen on; 0: one that is free.")  # fmt: skip
@click.option("--allow-host", "allow_hosts", multiple=True, metavar="NAME",
              help="Name under which a proxy passes requests on; may be repeated.")  # fmt: skip
@click.option("--allow-origin", "allow_origins", multiple=True, metavar="ORIGIN",
              help="Let pages of another origin use the service; may be repeated.")  # fmt: skip
@click.option("--keep-images", is_flag=True, help="Keep the images as they came.")
@click.option("--engine", default="local", show_default=True, 
              type=click.Choice(["local", "processes", "ray"]),
              help="Where images are encoded and sessions learn.")  # fmt: skip
@click.option("--replicas", default=2, show_default=True, type=click.IntRange(min=1),
              help="With processes and ray: encoders.")  # fmt: skip
@click.option("--owners", default=2, show_default=True, type=click.IntRange(min=1),
              help="With ray: actors in which sessions learn.")  # fmt: skip
@click.option("--address", help="Ray cluster to use.  [default: one on this machine]")
@limit_options
@plugin_option
def serve(
    model: str,
    device: str | None,
    precision: str | None,
    templates: tuple[str, ...],
    data: Path,
    host: str,
    port: int,
    allow_hosts: tuple[str, ...],
    allow_origins: tuple[str, ...],
    keep_images: bool,
    engine: str,
    replicas: int,
    owners: int,
    address: str | None,
    **limits: Any,
) -> None:
    """Serve sessions over HTTP, with a page to watch them live.

    Listens on this machine only, unless --host says otherwise and the variable CRG_TOKEN has a
    token. Sessions survive any stop; docs/service.md describes the API.

    \b
    Example:
      crg serve --model mini --port 8000 --data sessions/
    """
    token = os.environ.get("CRG_TOKEN") or None
    check_address(host, token)
    if address is not None and engine != "ray":
        raise InputError(f"Only Ray has an address, {address}: add --engine ray or leave it out.")
    for template in templates:
        check_template(template)
    settings = Settings(
        data, Limits(**limits), templates or (PHOTO,), keep_images, token, allow_hosts,
        allow_origins,
    )  # fmt: skip
    if model == "mini":
        note("the bundled model mini knows rendered shapes only; for photographs name another "
             "with --model.")  # fmt: skip
    load = partial(load_encoder, model, device=device, precision=precision)
    encoder = load()
    with contextlib.ExitStack() as held:
        service: Service | None = None
        if engine == "ray":
            cluster = open_cluster(
                settings, encoder, load, replicas, owners, address, loaded_plugins()
            )
            service = ClusterService(settings, encoder, held.enter_context(cluster))
        elif engine == "processes":
            encoders = open_processes(settings, load, replicas)
            service = ReplicaService(settings, encoder, held.enter_context(encoders))
        app = create_app(settings, encoder, service)
        run(app, settings, host, port, lambda page: click.echo(f"The page is at {page}"))
