"""Running the application: one process, one event loop, until it is told to stop."""

from __future__ import annotations

import contextlib
import signal
import socket
import sys
from collections.abc import Callable, Iterator

import uvicorn
from fastapi import FastAPI

from crg.server.service import Service, Settings
from crg.types import InputError

_SWITCH = 0.002  # seconds after which a thread that computes lets the event loop go on
_STOPS = (signal.SIGINT, signal.SIGTERM)


class _Server(uvicorn.Server):
    """Tells the service first when it is to stop, so that streams of events end."""

    def __init__(self, config: uvicorn.Config, service: Service, on_ready: Callable[[], None]):
        super().__init__(config)
        self._service, self._on_ready = service, on_ready

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """SIGTERM and Ctrl-C end the server, and not the process: that is a good end."""
        before = {each: signal.signal(each, self.handle_exit) for each in _STOPS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Open the doors, and say so."""
        await super().startup(sockets)
        if not self.should_exit:
            self._on_ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Answer what was accepted, and close."""
        self._service.stop_watching()
        await super().shutdown(sockets)


def serve(
    app: FastAPI, settings: Settings, host: str, port: int, on_ready: Callable[[str], None]
) -> None:
    """Serve until SIGTERM or Ctrl-C; ``on_ready`` gets the address of the page."""
    listening = _listen(host, port)
    name = f"[{host}]" if ":" in host else host
    address = f"http://{name}:{listening.getsockname()[1]}/"
    config = uvicorn.Config(
        app,
        log_level="critical",  # what fails is logged by the application
        access_log=False,
        server_header=False,
        limit_concurrency=settings.limits.max_connections,
        timeout_keep_alive=30,
    )
    sys.setswitchinterval(_SWITCH)
    server = _Server(config, app.state.service, lambda: on_ready(address))
    try:
        server.run(sockets=[listening])
    except SystemExit:
        raise app.state.failure or InputError("The server could not start: see above.") from None


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
