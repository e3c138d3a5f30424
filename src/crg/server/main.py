"""Running the application: one process, one event loop, until a signal stops it."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path

import uvicorn

from crg.encoders.base import Encoder
from crg.server.app import create_app
from crg.server.batching import encoders_on_ray
from crg.server.limits import ServerConfig
from crg.server.security import check_address
from crg.types import InputError

_BACKLOG = 2048  # connections that wait to be accepted, as uvicorn has it
_SWITCH = 0.002  # seconds after which a computing thread yields to the event loop


def serve(
    load: Callable[[], Encoder],
    data: Path,
    config: ServerConfig,
    *,
    host: str,
    port: int,
    on_ready: Callable[[str], None],
    replicas: int = 0,
    address: str | None = None,
) -> None:
    """Serve until SIGTERM or Ctrl-C; ``on_ready`` gets the address of the page.

    With ``replicas``, as many encoders run on Ray, on the cluster at ``address``. The token comes
    from the variable CRG_TOKEN.
    """
    token = os.environ.get("CRG_TOKEN") or None
    check_address(host, token)
    if address is not None and not replicas:
        raise InputError(f"Only Ray has an address, {address}: add --engine ray or leave it out.")
    encoder = load()
    with contextlib.ExitStack() as held:
        encoders = (
            held.enter_context(encoders_on_ray(encoder, load, replicas, address))
            if replicas
            else ()
        )
        app = create_app(data, config, encoder, token, encoders)
        listening = held.enter_context(_listen(host, port))
        name = f"[{host}]" if ":" in host else host
        page = f"http://{name}:{listening.getsockname()[1]}/"
        app.state.on_ready = lambda: on_ready(page)
        server = uvicorn.Server(
            uvicorn.Config(
                app,
                log_level="critical",  # the application logs what fails
                access_log=False,
                server_header=False,
                limit_concurrency=config.max_connections,
                timeout_keep_alive=30,
            )
        )
        sys.setswitchinterval(_SWITCH)
        for number in (signal.SIGINT, signal.SIGTERM):  # uvicorn raises them again at its end
            signal.signal(number, lambda *_: None)
        with contextlib.suppress(SystemExit):
            server.run(sockets=[listening])
        if not server.started:
            raise app.state.failure or InputError("The server could not start: see above.")


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)  # then no delays
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
        listening.listen(_BACKLOG)  # before the page is announced
    except (OSError, OverflowError) as error:
        listening.close()
        raise InputError(
            f"{host}:{port} cannot be listened on ({error}): choose another --host or --port."
        ) from None
    return listening
