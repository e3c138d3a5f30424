"""``crg serve``: sessions over HTTP, and a page to watch them."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import click

from crg.cli import shared
from crg.cli.shared import FILE, FOLDER, address_option, note, plugin_option
from crg.extras import library
from crg.features.files import load_with_classes

for _name in ("fastapi", "fastapi_offline", "prometheus_client", "python_multipart",
              "sse_starlette", "uvicorn"):  # fmt: skip
    library(_name, "server")

from crg.server import app  # noqa: E402  (needs what is checked above)
from crg.server.limits import ServerConfig, read_config  # noqa: E402


@click.command()
@click.option("--model", default="mini", show_default=True, metavar="NAME",
              help="As `crg encoders` lists them.")  # fmt: skip
@shared.model_options
@click.option("--data", default="sessions", show_default=True, type=FOLDER, metavar="FOLDER",
              help="Folder in which sessions are kept.")  # fmt: skip
@click.option("--config", metavar="FILE", type=FILE,
              help="TOML file of limits and other settings; see docs/service.md.")  # fmt: skip
@click.option("--host", default="127.0.0.1", show_default=True,
              help="Address to listen on; any but this machine's own needs CRG_TOKEN.")  # fmt: skip
@click.option("--port", default=8000, show_default=True, type=click.IntRange(0, 65535),
              help="Port to listen on; 0: one that is free.")  # fmt: skip
@click.option("--engine", default="local", show_default=True, type=click.Choice(["local", "ray"]),
              help="Where images are encoded.")  # fmt: skip
@address_option
@plugin_option
def serve(
    model: str, text_features: Path | None, device: str | None, data: Path, config: Path | None,
    **options: Any,
) -> None:  # fmt: skip
    """Serve sessions over HTTP, with a page to watch them live.

    Listens on this machine only, unless --host says otherwise and the variable CRG_TOKEN has a
    token. Sessions survive any stop; docs/service.md describes the API.

    \b
    Example:
      crg serve --model mini --port 8000 --data sessions/
    """
    if model == "mini":
        note("the bundled model mini knows rendered shapes only; for photographs name another "
             "with --model.")  # fmt: skip
    settings = ServerConfig() if config is None else read_config(config)
    app.serve(
        partial(load_with_classes, model, text_features, device=device,
                precision=settings.precision or None),
        data, settings, on_ready=lambda page: click.echo(f"The page is at {page}"), **options,
    )  # fmt: skip
