"""Running the application: one process, one event loop, until it is told to stop."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import sys
from collections.abc import Callable, Iterator

import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from crg.server.service import Service, Settings
from crg.types import InputError

_SWITCH = 0.002  # seconds after which a thread that computes lets the event loop go on
_MOST_HEAD = 65_536  # bytes of a request before its body
_STOPS = (signal.SIGINT, signal.SIGTERM)


class _Protocol(HttpToolsProtocol):
    """HTTP on one connection; whoever does not say in time what is wanted is disconnected."""

    _head = 0  # bytes of a request that has not said yet what it wants
    _late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for the first request."""
        super().connection_made(transport)
        self._wait()

    def data_received(self, data: bytes) -> None:
        """Take what came, but no more of a head than there can be."""
        if self._late is None and (self.cycle is None or self.cycle.response_complete):
            self._wait()
        super().data_received(data)
        if self._late is not None:
            self._head += len(data)
            if self._head > _MOST_HEAD:
                self._end(b"431 Request Header Fields Too Large")

    def on_headers_complete(self) -> None:
        """What is wanted is known."""
        self._stop_waiting()
        super().on_headers_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        """The other side is gone."""
        self._stop_waiting()
        super().connection_lost(exc)

    def _wait(self) -> None:
        seconds = self.config.app.state.service.limits.body_timeout  # type: ignore[union-attr]
        self._head = 0
        self._late = self.loop.call_later(seconds, self._end, b"408 Request Timeout")

    def _stop_waiting(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def _end(self, status: bytes) -> None:
        self._stop_waiting()
        if not self.transport.is_closing():
            self.transport.write(b"HTTP/1.1 %b\r\nConnection: close\r\n\r\n" % status)
            self.transport.close()


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
        http=_Protocol,
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
