"""Running the application: one process, one event loop, until a signal stops it."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import uvicorn

from crg.encoders.base import Encoder
from crg.server.app import create_app
from crg.server.batching import encoders_on_ray
from crg.server.limits import ServerConfig
from crg.server.security import check_address
from crg.server.service import Service
from crg.types import InputError

_SWITCH = 0.002  # seconds after which a computing thread yields to the event loop
_STOPS = (signal.SIGINT, signal.SIGTERM)


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
        options = uvicorn.Config(
            app,
            log_level="critical",  # the application logs what fails
            access_log=False,
            server_header=False,
            limit_concurrency=config.max_connections,
            timeout_keep_alive=30,
        )
        sys.setswitchinterval(_SWITCH)
        server = _Server(options, app.state.service, lambda: on_ready(page))
        try:
            server.run(sockets=[listening])
        except SystemExit:
            failure = app.state.failure or InputError("The server could not start: see above.")
            raise failure from None


class _Server(uvicorn.Server):
    """Ends the streams of events before it stops, which would wait for them."""

    def __init__(self, config: uvicorn.Config, service: Service, on_ready: Callable[[], None]):
        super().__init__(config)
        self._service, self._on_ready = service, on_ready

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Stop the server on SIGTERM and Ctrl-C without raising them again: exit with 0."""
        before = {each: signal.signal(each, self.handle_exit) for each in _STOPS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept connections, and say so."""
        await super().startup(sockets)
        if not self.should_exit:
            self._on_ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Answer what was accepted, and close."""
        self._service.stop_watching()
        await super().shutdown(sockets)


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)  # then no delays
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
    except (OSError, OverflowError) as error:
        listening.close()
        raise InputError(
            f"{host}:{port} cannot be listened on ({error}): choose another --host or --port."
        ) from None
    return listening
