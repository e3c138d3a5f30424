"""The application, and the process that serves it: one event loop, until a signal stops it."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path

import fastapi_offline
import uvicorn
from fastapi import FastAPI, Request, Response
from fastapi.responses import FileResponse
from fastapi.staticfiles import StaticFiles
from prometheus_client import generate_latest
from starlette.middleware.cors import CORSMiddleware

import crg
from crg import predict
from crg.encoders.base import Encoder
from crg.server import actions, routes, schema
from crg.server.actions import content_of, received, service_of
from crg.server.batching import Encode, encoders_on_ray
from crg.server.limits import ServerConfig
from crg.server.schema import TEXT, ProblemError, body, files, problems
from crg.server.security import COOKIE, Guard, Token, check_address
from crg.server.service import Service
from crg.types import InputError

_HEAD = 65_536  # bytes of a request before its body
_BACKLOG = 2048  # connections that wait to be accepted, as uvicorn has it
_SWITCH = 0.002  # seconds after which a computing thread yields to the event loop
_LOGIN = 10_000  # bytes of a request for a cookie
_PLAIN = {"text/plain": TEXT}
STATIC = Path(__file__).with_name("static")
SWAGGER = Path(fastapi_offline.__file__).with_name("static")  # Swagger UI, from no CDN
CARDS = Path(predict.__file__).with_name("cards")  # which the review page has, too


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
        docs_url=None,  # both load scripts from elsewhere; /docs is below
        redoc_url=None,
    )
    app.state.service = service
    app.state.failure, app.state.on_ready = None, lambda: None  # why it could not start
    app.state.token = guard = None if token is None else Token(token)
    schema.add_handlers(app)
    # FastAPI takes as long as learning does: there it only documents this route.
    app.add_route("/v1/sessions/{id}/images", actions.send_images, ["POST"])
    app.include_router(actions.router)
    app.include_router(routes.router)
    _add_pages(app)
    app.add_middleware(
        Guard, metrics=service.metrics, token=guard, hosts=config.allow_hosts,
        origins=config.allow_origins,
    )  # fmt: skip
    if config.allow_origins:
        app.add_middleware(
            CORSMiddleware, allow_origins=config.allow_origins, allow_methods=["*"],
            allow_headers=["*"], expose_headers=["Location", "Retry-After", "Idempotent-Replay"],
        )  # fmt: skip
    return app


@contextlib.asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    service: Service = app.state.service
    try:
        service.open()
    except InputError as error:
        app.state.failure = error
        raise
    app.state.on_ready()
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

    @app.get("/healthz", **files(503, **_PLAIN))
    async def healthz(request: Request) -> Response:
        """200 while the process makes progress."""
        if service_of(request).stalled:
            raise ProblemError(503, "A step does not end: restart the server.")
        return Response("ok\n", media_type="text/plain")

    @app.get("/readyz", **files(503, **_PLAIN))
    async def readyz(request: Request) -> Response:
        """200 while requests are taken."""
        if not service_of(request).ready:
            raise ProblemError(503, "The server is starting or stopping: try again in a moment.")
        return Response("ready\n", media_type="text/plain")

    @app.get("/metrics", **files(**_PLAIN))
    async def metrics(request: Request) -> Response:
        """Counters for Prometheus."""
        text = generate_latest(service_of(request).metrics.registry)
        return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")

    @app.post("/login", status_code=204, responses=problems(400, 408, 413, 422),
              openapi_extra=body(schema.Login))  # fmt: skip
    async def login(request: Request) -> Response:
        """Exchange the token for a cookie that a browser keeps."""
        token = request.app.state.token
        async with content_of(request, _LOGIN) as content:
            given = (await received(service_of(request), schema.Login, content)).token
        if token is not None and not token.is_right(given):
            raise ProblemError(401, "The token is wrong: ask who runs the server.")
        answer = Response(status_code=204)
        if token is not None:
            answer.set_cookie(COOKIE, token.cookie, httponly=True, samesite="strict",
                              secure=request.url.scheme == "https")  # fmt: skip
        return answer

    @app.delete("/login", status_code=204, responses=problems())
    async def logout() -> Response:
        """Have the browser forget the cookie."""
        answer = Response(status_code=204)
        answer.delete_cookie(COOKIE)
        return answer


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
    with (
        encoders_on_ray(encoder, load, replicas, address) as encoders,
        _listen(host, port) as listening,
    ):
        app = create_app(data, config, encoder, token, encoders)
        name = f"[{host}]" if ":" in host else host
        page = f"http://{name}:{listening.getsockname()[1]}/"
        app.state.on_ready = lambda: on_ready(page)
        settings = uvicorn.Config(
            app, log_level="critical", access_log=False,  # the application logs what fails
            server_header=False, limit_concurrency=config.max_connections, timeout_keep_alive=30,
            http="h11", h11_max_incomplete_event_size=_HEAD,
        )  # fmt: skip
        server = uvicorn.Server(settings)
        sys.setswitchinterval(_SWITCH)
        for number in (signal.SIGINT, signal.SIGTERM):  # uvicorn raises them again at its end
            signal.signal(number, lambda *_: None)
        with contextlib.suppress(SystemExit):
            server.run(sockets=[listening])
        if not server.started:
            raise app.state.failure or InputError("The server could not start: see above.")


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listening = socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except (OSError, OverflowError) as error:
        raise InputError(f"{host}:{port} cannot be listened on ({error}): "
                         "choose another --host or --port.") from None  # fmt: skip
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening
