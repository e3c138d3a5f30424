"""The application, who is let in, and the process that serves it until a signal stops it.

Access is by token, cookie, Host and Origin; every answer has the headers that protect a browser.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import ipaddress
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from urllib.parse import urlsplit

import fastapi_offline
import uvicorn
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse
from fastapi.routing import APIRoute
from fastapi.staticfiles import StaticFiles
from prometheus_client import generate_latest
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

import crg
from crg import predict
from crg.encoders.base import Encoder
from crg.server import actions, routes, schema
from crg.server.actions import Here, json_of
from crg.server.batching import Encode, encoders_on_ray
from crg.server.limits import ServerConfig
from crg.server.schema import TEXT, ProblemError, body, files
from crg.server.service import Service
from crg.types import InputError

_LOGGER = logging.getLogger("crg.server")
_HEAD = 65_536  # bytes of a request before its body
_BACKLOG = 2048  # connections that wait to be accepted, as uvicorn has it
_RECEIVED = 32_768  # bytes of a connection that are parsed at once, in chunks of a byte or more
_SWITCH = 0.002  # seconds after which a computing thread yields to the event loop
_LOGIN = 10_000  # bytes of a request for a cookie
_PLAIN = {"text/plain": TEXT}
STATIC = Path(__file__).with_name("static")
SWAGGER = Path(fastapi_offline.__file__).with_name("static")  # Swagger UI, from no CDN
CARDS = Path(predict.__file__).with_name("cards")  # which the review page has, too
COOKIE = "crg_token"
SHORTEST_TOKEN = 16  # characters
_OPEN = ("/", "/docs", "/login", "/openapi.json", "/healthz", "/readyz")
_TAGS = {"images": ("images", "corrections", "zero-shot"), "classes": ("classes",),
         "sessions": ("sessions",)}  # of /docs, by a word of the path; else "server"  # fmt: skip
_SAFE = ("GET", "HEAD", "OPTIONS")
_METHODS = (*_SAFE, "POST", "DELETE", "PUT", "PATCH")
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


def create_app(
    data: Path,
    config: ServerConfig,
    encoder: Encoder,
    token: str | None = None,
    encoders: Sequence[Encode] = (),
) -> FastAPI:
    """The service for one folder and one model; it opens and closes with the application."""
    service = Service(data, config, encoder, encoders)
    app = FastAPI(
        title="CRG",
        version=crg.__version__,
        description="Test-time adaptation for CLIP-like models, as sessions over HTTP.",
        lifespan=_lifespan,
        responses=schema.problems(),
        openapi_tags=[{"name": tag} for tag in (*reversed(_TAGS), "server")],
        docs_url=None,  # both load scripts from elsewhere; /docs is below
        redoc_url=None,
    )
    app.state.service = service
    app.state.token = None if token is None else Token(token)
    for kind in (HTTPException, RequestValidationError):  # which FastAPI would answer itself
        app.add_exception_handler(kind, _raise)
    # FastAPI takes as long as learning does: there it only documents this route.
    app.add_route("/v1/sessions/{id}/images", actions.send_images, ["POST"])
    app.include_router(actions.router)
    app.include_router(routes.router)
    _add_pages(app)
    for route in (*actions.router.routes, *routes.router.routes, *app.routes):
        if isinstance(route, APIRoute):
            words = {*route.path.split("/")}
            route.tags = [next((tag for tag in _TAGS if words & {*_TAGS[tag]}), "server")]
    app.add_middleware(Guard, service=service, token=app.state.token)
    if config.allow_origins:
        app.add_middleware(
            CORSMiddleware, allow_origins=config.allow_origins, allow_methods=["*"],
            allow_headers=["*"], expose_headers=["Location", "Retry-After", "Idempotent-Replay"],
        )  # fmt: skip
    return app


async def _raise(_: Request, error: Exception) -> Response:
    raise error


@contextlib.asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    service: Service = app.state.service
    service.open()
    try:
        yield
    finally:
        await service.close()


def _add_pages(app: FastAPI) -> None:
    app.mount("/static/cards", StaticFiles(directory=CARDS))
    app.mount("/static/swagger", StaticFiles(directory=SWAGGER))
    app.mount("/static", StaticFiles(directory=STATIC))

    @app.get("/", include_in_schema=False)
    @app.get("/docs", include_in_schema=False)
    async def page(request: Request) -> Response:
        name = "docs.html" if request.scope["route"].path == "/docs" else "index.html"
        return FileResponse(STATIC / name, headers={"Cache-Control": "no-cache"})

    @app.get("/healthz", **files(**_PLAIN))
    async def healthz(service: Here) -> Response:
        """200 while the process makes progress."""
        if service.stalled:
            raise ProblemError(503, "A step does not end: restart the server.")
        return Response("ok\n", media_type="text/plain")

    @app.get("/readyz", **files(**_PLAIN))
    async def readyz(service: Here) -> Response:
        """200 while requests are taken."""
        if not service.ready:
            raise ProblemError(503, "The server is starting or stopping: try again in a moment.")
        return Response("ready\n", media_type="text/plain")

    @app.get("/metrics", **files(**_PLAIN))
    async def metrics(service: Here) -> Response:
        """Counters for Prometheus."""
        text = generate_latest(service.metrics.registry)
        return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")

    @app.post("/login", status_code=204, openapi_extra=body(schema.Login))
    async def login(request: Request) -> Response:
        """Exchange the token for a cookie that a browser keeps."""
        token = request.app.state.token
        async with json_of(request, schema.Login, _LOGIN) as (new, _):
            if token is not None and not token.is_right(new.token):
                raise ProblemError(401, "The token is wrong: ask who runs the server.")
        answer = Response(status_code=204)
        if token is not None:
            answer.set_cookie(COOKIE, token.cookie, httponly=True, samesite="strict",
                              secure=request.url.scheme == "https")  # fmt: skip
        return answer

    @app.delete("/login", status_code=204)
    async def logout() -> Response:
        """Have the browser forget the cookie."""
        answer = Response(status_code=204)
        answer.delete_cookie(COOKIE)
        return answer


def check_address(host: str, token: str | None) -> None:
    """Refuse to listen without a token on an address that others can reach."""
    if token is not None and len(token) < SHORTEST_TOKEN:
        raise InputError(f"CRG_TOKEN has {len(token)} characters: set at least {SHORTEST_TOKEN}.")
    if token is None and not is_loopback(host):
        raise InputError(f"--host {host} can be reached by others: set a token in CRG_TOKEN, "
                         "or listen on 127.0.0.1.")  # fmt: skip


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

    def __init__(self, app: ASGIApp, service: Service, token: Token | None) -> None:
        self._app, self._metrics, self._token = app, service.metrics, token
        self._data = service.data
        self._hosts = {host.lower() for host in service.config.allow_hosts}
        self._origins = {origin.lower() for origin in service.config.allow_origins}

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
            problem = schema.problem_of(error, self._data)
            if status or (problem.status >= 500 and problem is not error):
                _LOGGER.error("%s %s failed", method, scope["path"], exc_info=error)
            if status:
                raise  # half of an answer has left
            await problem.response(getattr(error, "headers", None))(scope, receive, sealed)
        finally:
            route = getattr(scope.get("route"), "path", "")
            known = method if method in _METHODS else "other"
            self._metrics.requests.labels(known, route, str(status)).inc()
            self._metrics.seconds.labels(route).observe(time.perf_counter() - begun)

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


def serve(
    load: Callable[[], Encoder],
    data: Path,
    config: ServerConfig,
    *,
    host: str,
    port: int,
    on_ready: Callable[[str], None],
    engine: str = "local",
    address: str | None = None,
) -> None:
    """Serve until SIGTERM or Ctrl-C; ``on_ready`` gets the address of the page.

    With the engine "ray", encoders run on the cluster at ``address``. The token comes from the
    variable CRG_TOKEN.
    """
    token = os.environ.get("CRG_TOKEN") or None
    check_address(host, token)
    if address is not None and engine != "ray":
        raise InputError(f"Only Ray has an address, {address}: add --engine ray or leave it out.")
    encoder = load()
    there: AbstractContextManager[Sequence[Encode]] = contextlib.nullcontext(())
    if engine == "ray":
        there = encoders_on_ray(encoder, load, config.replicas, address)
    with there as encoders, _listen(host, port) as listening:
        app = create_app(data, config, encoder, token, encoders)
        name = f"[{host}]" if ":" in host else host
        page = f"http://{name}:{listening.getsockname()[1]}/"
        settings = uvicorn.Config(
            app, log_level="critical", access_log=False,  # the application logs what fails
            server_header=False, limit_concurrency=config.max_connections, timeout_keep_alive=30,
            http="h11", h11_max_incomplete_event_size=_HEAD, lifespan="off",
        )  # fmt: skip

        class Server(uvicorn.Server):
            async def serve(self, sockets: list[socket.socket] | None = None) -> None:
                async with _lifespan(app):  # not by uvicorn, which hides why it fails
                    sys.setswitchinterval(_SWITCH)
                    for number in (signal.SIGINT, signal.SIGTERM):  # it raises them at its end
                        signal.signal(number, lambda *_: None)
                    on_ready(page)
                    await super().serve(sockets)

        Server(settings).run(sockets=[listening])


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listening = socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except (OSError, OverflowError) as error:
        raise InputError(f"{host}:{port} cannot be listened on ({error}): "
                         "choose another --host or --port.") from None  # fmt: skip
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVED)
    return listening
