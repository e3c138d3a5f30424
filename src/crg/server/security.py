"""Access control by token, cookie, Host and Origin; and headers on every answer."""

from __future__ import annotations

import functools
import hashlib
import hmac
import ipaddress
import logging
import time
from collections.abc import Iterable
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from crg.server.schema import ProblemError
from crg.server.service import Counters
from crg.types import InputError

_LOGGER = logging.getLogger("crg.server")
COOKIE = "crg_token"
SHORTEST_TOKEN = 16  # characters
_OPEN = ("/", "/docs", "/login", "/openapi.json", "/healthz", "/readyz")
_SAFE = ("GET", "HEAD", "OPTIONS")
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self' blob: data:; media-src 'self' blob:; connect-src 'self'; font-src 'self'; "
    "manifest-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(self), microphone=(), geolocation=()",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cache-Control": "no-store",
}
_RAW = [(name.lower().encode(), value.encode()) for name, value in _HEADERS.items()]


def check_address(host: str, token: str | None) -> None:
    """Refuse to listen without a token on an address that others can reach."""
    if token is not None and len(token) < SHORTEST_TOKEN:
        raise InputError(f"CRG_TOKEN has {len(token)} characters: set at least {SHORTEST_TOKEN}.")
    if token is None and not is_loopback(host):
        raise InputError(f"--host {host} can be reached by others: set a token in CRG_TOKEN, "
                         "or listen on 127.0.0.1.")  # fmt: skip


@functools.lru_cache(256)
def is_loopback(host: str) -> bool:
    """Whether a name or address means this machine."""
    if host.lower().rstrip(".") == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


class Token:
    """The token, and the cookie that stands for it in a browser."""

    def __init__(self, token: str) -> None:
        self._token = token.encode()
        self.cookie = hmac.new(self._token, b"crg cookie", hashlib.sha256).hexdigest()

    def is_right(self, token: str) -> bool:
        """Whether this is the token, in constant time."""
        return hmac.compare_digest(token.encode(), self._token)

    def let_in(self, headers: Headers) -> bool:
        """Whether a request carries the token, or the cookie."""
        scheme, _, given = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            return self.is_right(given.strip())
        wanted, cookies = f"{COOKIE}={self.cookie}".encode(), headers.get("cookie", "").split(";")
        return any(hmac.compare_digest(each.strip().encode(), wanted) for each in cookies)


class Guard:
    """Refuses what must not come in; adds security headers, counts requests, serves HEAD as GET."""

    def __init__(self, app: ASGIApp, metrics: Counters, token: Token | None,
                 hosts: Iterable[str], origins: Iterable[str]) -> None:  # fmt: skip
        self._app, self._metrics, self._token = app, metrics, token
        self._hosts = {host.lower() for host in hosts}
        self._origins = {origin.lower() for origin in origins}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through, or answer it with the problem."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun, status, method = time.perf_counter(), 0, scope["method"]

        async def sealed(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status, given = message["status"], message.get("headers", ())
                named = {name for name, _ in given}
                ours = [header for header in _RAW if header[0] not in named]
                message = {**message, "headers": [*given, *ours]}
            elif method == "HEAD" and message["type"] == "http.response.body":
                message = {**message, "body": b""}
            await send(message)

        try:
            self._check(scope, Headers(scope=scope))
            if method == "HEAD" and not scope["path"].endswith("/events"):
                scope["method"] = "GET"
            await self._app(scope, receive, sealed)
        except Exception as error:
            problem = error
            if status or not isinstance(problem, ProblemError):
                _LOGGER.error("%s %s failed", method, scope["path"], exc_info=error)
                problem = ProblemError(500, "The server failed: ask who runs it to read its log.")
            if status:
                raise  # half of an answer has left
            await problem.response()(scope, receive, sealed)
        finally:
            route = getattr(scope.get("route"), "path", "")
            self._metrics.answered(method, route, status, time.perf_counter() - begun)

    def _check(self, scope: Scope, headers: Headers) -> None:
        host = headers.get("host", "")
        name = _place(f"//{host}")[0]
        if self._token is None and not is_loopback(name) and name not in self._hosts:
            raise ProblemError(403, f"The host {host!r} is not known here: use localhost, or name "
                                    "it in allow_hosts of the --config file.")  # fmt: skip
        origin = headers.get("origin", "").lower()
        if scope["method"] not in _SAFE and "origin" in headers and origin not in self._origins:
            if _place(origin)[1] != host.lower():
                raise ProblemError(403, "The request comes from a page of another origin: name "
                                        "that in allow_origins of the --config file.")  # fmt: skip
        path = scope["path"]
        if self._token is None or path in _OPEN or path.startswith("/static/"):
            return
        if not self._token.let_in(headers):
            raise ProblemError(401, "The token is missing or wrong: send it as "
                                    "Authorization: Bearer TOKEN.")  # fmt: skip


def _place(address: str) -> tuple[str, str]:
    """The host of an address, without and with its port; both empty if there is none."""
    try:
        parts = urlsplit(address)
        return parts.hostname or "", parts.netloc
    except ValueError:
        return "", ""
