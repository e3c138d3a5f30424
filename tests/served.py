"""A service for tests: in this process with a tiny encoder, or as a separate process."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
from PIL import Image
from starlette.testclient import TestClient

from colour_encoder import COLOURS, ColourEncoder
from crg.encoders.base import Encoder
from crg.server.app import create_app
from crg.server.limits import ServerConfig
from made_files import encoded

HERE = "http://127.0.0.1"
NAMES = list(COLOURS)


def png(colour: str = "red", size: tuple[int, int] = (24, 20), noise: int = 0) -> bytes:
    """A file of one colour, a little different for each ``noise``."""
    values = tuple(max(0, min(255, value + noise)) for value in COLOURS[colour])
    return encoded(Image.new("RGB", size, values), "PNG")


@contextlib.contextmanager
def client(
    data: Path, encoder: Encoder | None = None, token: str | None = None, **config: Any
) -> Iterator[TestClient]:
    """A client of a service in this process."""
    app = create_app(data, ServerConfig(**config), encoder or ColourEncoder(), token)
    with TestClient(app, HERE, raise_server_exceptions=False) as served:
        yield served


def start(served: Any, **more: Any) -> str:
    """A new session of three colours; its address."""
    answer = served.post("/v1/sessions", json={"classes": NAMES, **more})
    assert answer.status_code == 201, answer.text
    assert answer.headers["location"] == f"/v1/sessions/{answer.json()['id']}"
    return str(answer.headers["location"])


def headers_of(key: str | None = None) -> dict[str, str]:
    """The headers of a request whose body is one image."""
    return {"Content-Type": "image/png"} | ({"Idempotency-Key": key} if key else {})


def send(served: Any, session: str, content: bytes, key: str | None = None) -> Any:
    """Send one image as the whole body; the answer to it."""
    answer = served.post(f"{session}/images", content=content, headers=headers_of(key))
    assert answer.status_code == 200, answer.text
    [one] = answer.json()["answers"]
    return one


def refused(answer: Any, status: int, *words: str) -> dict[str, Any]:
    """The problem document of a refused request, which has these words."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    problem: dict[str, Any] = answer.json()
    assert problem["status"] == status and problem["title"] and problem["type"] == "about:blank"
    assert all(word in problem["detail"] for word in words), problem["detail"]
    assert problem["detail"].endswith((".", "?")) and "\n" not in problem["detail"]
    return problem


class Process:
    """``crg serve`` with the bundled model, as a separate process."""

    def __init__(
        self, data: Path, *options: str, token: str = "", disk: int = 0, **config: Any
    ) -> None:
        """``disk`` gives it a folder on a disk of so many MB, which nobody else sees."""
        data.mkdir(parents=True, exist_ok=True)
        lines = [f"{name} = {json.dumps(value)}\n" for name, value in config.items()]
        settings = data.with_name(f"{data.name}.toml")
        settings.write_text("".join(lines))
        mount = f'mount -t tmpfs -o size={disk}m tmpfs "$0" && exec "$@"'
        self._command = [
            *(("unshare", "-Urm", "sh", "-c", mount, str(data)) if disk else ()),
            *(sys.executable, "-m", "crg", "serve", "--port", "0", "--data", str(data)),
            *("--config", str(settings), *options),
        ]
        self._environment = {**os.environ, "CRG_TOKEN": token}
        self.start()

    def start(self, *options: str) -> None:
        """Start it, with some more options."""
        self.process = subprocess.Popen(
            [*self._command, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env=self._environment,
        )  # fmt: skip
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, self.process.communicate()[1]
        self.address = line.split()[-1].rstrip("/")
        self.port = int(self.address.rpartition(":")[2])

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()

    def restart(self) -> None:
        """Kill it as a power cut would, and start it again on its port."""
        self.stop(signal.SIGKILL)
        self.start("--port", str(self.port))

    def client(self) -> httpx.Client:
        """A client of it."""
        return httpx.Client(base_url=self.address, timeout=60)

    def request(self, line: str, headers: str = "", body: bytes = b"") -> socket.socket:
        """A connection on which a request was sent, or its head and a part of its body."""
        made = socket.create_connection(("127.0.0.1", self.port), timeout=30)
        try:
            made.sendall(f"{line}\r\nHost: localhost\r\n{headers}\r\n".encode() + body)
        except OSError:  # the server may close it before all was sent
            made.close()
            raise
        return made

    def stop(self, number: int = signal.SIGTERM) -> tuple[int, str]:
        """Send a signal; the exit code and what was said on stderr."""
        self.process.send_signal(number)
        _, said = self.process.communicate(timeout=60)
        return self.process.returncode, said
