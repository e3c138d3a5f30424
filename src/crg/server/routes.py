"""The addresses that only read or watch, and the one that answers as Hugging Face's does."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import io
import pathlib
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from typing import Annotated, Any, Literal, TypeAlias

from fastapi import APIRouter, Header, Path, Query, Request, Response
from fastapi.responses import FileResponse, StreamingResponse
from msgspec import json, structs
from PIL import Image
from sse_starlette.event import ServerSentEvent
from sse_starlette.sse import EventSourceResponse, SendTimeoutError
from starlette.types import Receive, Scope, Send

import crg
from crg.adapter import create
from crg.answer import COLUMNS
from crg.methods.registry import DEFAULT
from crg.predict.lines import csv_line, csv_row, json_line
from crg.predict.pipeline import Scores, scores_of
from crg.prompts import check_template
from crg.server import schema
from crg.server.actions import OCTETS, as_json, content_of, learn_images, parsed, service_of
from crg.server.event_log import Event, StoredSession, listed, summarise
from crg.server.schema import BINARY, TEXT, ProblemError, answers, body, files
from crg.server.service import Service, size_of
from crg.server.session import Learner
from crg.shapes import ShapeImage, class_things
from crg.types import InputError, Task

router = APIRouter(prefix="/v1")
Step = Annotated[int, Path(ge=1, lt=2**53, examples=[7])]
Number = Annotated[int | None, Query(ge=0, le=2**62)]
_FIELDS = ("step", "event", "at", "name", "label", "probability", "zero_shot_label",
           "zero_shot_probability", "changed", "outside", "corrected")  # fmt: skip
_LABEL_BYTES = 4_000_000  # of a request besides its image
_FOR_EVER = "private, max-age=31536000, immutable"
_STUCK = 20.0  # seconds that a watcher may take to read what it is sent
Message: TypeAlias = tuple[int, str, str]  # number, kind and detail as JSON of an event
Frames: TypeAlias = AsyncGenerator[ServerSentEvent, None]


@router.get("", responses=answers(schema.ABOUT))
async def about(request: Request) -> Response:
    """The server's version, model, methods and limits."""
    service = service_of(request)
    examples, settings = _examples(service), structs.asdict(service.config)
    classes = sorted({image.thing.name for image in examples})
    return as_json(
        {
            "version": crg.__version__,
            "model": service.encoder.name,
            "knows": "rendered shapes only" if examples else "what captions of photographs name",
            "examples": {"images": len(examples), "classes": classes} if examples else None,
            "width": service.encoder.width,
            "default_method": DEFAULT,
            "methods": service.states.methods(),
            "templates": service.config.templates,
            "limits": {name: n for name, n in settings.items() if type(n) is int},
            "keep_images": service.config.keep_images,
        }
    )


def _examples(service: Service) -> list[ShapeImage]:
    """Twelve images that the bundled model knows; none for any other model."""
    things = class_things()[:6] if service.encoder.name == "mini" else ()
    return [ShapeImage(0, k, things[k % 6], "night", 2) for k in range(2 * len(things))]


@router.get("/examples/{number}", **files(404, 422, **{"image/png": BINARY}))
def example(request: Request, number: Step) -> Response:
    """One of the images with which the page tries the bundled model; a thread draws it."""
    images, file = _examples(service_of(request)), io.BytesIO()
    if number > len(images):
        raise ProblemError(404, "There is no such example: GET /v1 says how many there are.")
    images[number - 1].draw().save(file, "PNG")
    return Response(file.getvalue(), media_type="image/png")


@router.get("/sessions", responses=answers({"sessions": [schema.SESSION_LINE], "next": 42}, 422))
async def list_sessions(
    request: Request,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    before: Annotated[int, Query(ge=1, le=2**62)] = 2**62,
) -> Response:
    """Sessions, newest first; ``next`` continues the list as ``before``."""
    service = service_of(request)
    found = await service.run(listed, service.log, before, limit)
    following = found[-1][0] if len(found) == limit else None
    return as_json({"sessions": [line for _, line in found], "next": following})


@router.get("/sessions/{id}", responses=answers(schema.SESSION, 404, 422))
async def get_session(request: Request, id: str) -> Response:
    """A session: how it was started, counts and curves."""
    service = service_of(request)
    row = await service.row(id)
    return as_json(await service.run(summarise, service.log, row))


@router.get("/sessions/{id}/events", **files(404, 422, 503, **{"text/event-stream": TEXT}))
async def events(
    request: Request,
    id: str,
    after: Number = None,
    last_event_id: Annotated[int | None, Header(alias="Last-Event-ID", ge=0, le=2**62)] = None,
) -> Response:
    """The events of the session, as they happen."""
    service = service_of(request)
    row = await service.row(id)

    async def read(last: int) -> list[Message]:
        await service.row(id)  # else it was deleted
        return await service.run(service.log.messages, row.number, last)

    since = after if last_event_id is None else last_event_id
    if since is None:
        since = await service.run(service.log.last, row.number)
    service.watchers.take(1)
    frames = watch(service.flags.setdefault(id, set()), since, read)
    return EventStream(frames, lambda: service.watchers.give_back(1))


async def watch(
    flags: set[asyncio.Event], after: int, read: Callable[[int], Awaitable[Sequence[Message]]]
) -> Frames:
    """Frames for one watcher: whatever ``read`` has after an event, now and at news.

    While it runs, ``flags`` holds the watcher's flag: set it to report news. The stream ends with
    an event ``deleted`` when ``read`` finds no session.
    """
    news = asyncio.Event()
    flags.add(news)
    try:
        yield ServerSentEvent(comment="welcome")
        while True:
            news.clear()
            while messages := await read(after):
                for after, kind, detail in messages:
                    yield ServerSentEvent(detail, event=kind, id=str(after))
            await news.wait()
    except ProblemError:
        yield ServerSentEvent("{}", event="deleted", id="0")
    finally:
        flags.discard(news)


class EventStream(EventSourceResponse):
    """A stream of events; ``on_end`` is called when the watcher leaves or stops reading."""

    def __init__(self, frames: Frames, on_end: Callable[[], None]) -> None:
        super().__init__(frames, send_timeout=_STUCK)
        self._on_end = on_end

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send until the watcher leaves, is stuck, or the session is deleted."""
        try:
            with contextlib.suppress(SendTimeoutError):
                await super().__call__(scope, receive, send)
        finally:
            self._on_end()


@router.get(
    "/sessions/{id}/answers", **files(404, 422, **{"application/jsonl": TEXT, "text/csv": TEXT})
)
async def download_answers(
    request: Request, id: str, format: Annotated[Literal["jsonl", "csv"], Query()] = "jsonl"
) -> Response:
    """Every answer so far, with its last correction, as JSON Lines or CSV."""
    service = service_of(request)
    row = await service.row(id)
    return StreamingResponse(
        _lines(service, row, format),
        headers={"Content-Disposition": f'attachment; filename="answers-{id[:8]}.{format}"'},
        media_type="text/csv; charset=utf-8" if format == "csv" else "application/jsonl",
    )


async def _lines(service: Service, row: StoredSession, suffix: str) -> AsyncIterator[str]:
    options = {"none_of_these": "none_of_these", "class_set": "sets"}
    asked = [name for name in options if row.start.get(options[name]) is not None]
    if suffix == "csv":
        yield csv_row([*COLUMNS, *asked])
    after = 0
    while rows := await service.run(service.log.answers, row.number, after):
        after = rows[-1][0]
        found = [{**json.decode(detail), "corrected": corrected} for _, detail, corrected in rows]
        lines = [{name: each[name] for name in (*_FIELDS, *asked)} for each in found]
        yield "".join(
            csv_line(_cells(line), [*COLUMNS, *asked]) if suffix == "csv" else json_line(line)
            for line in lines
        )


def _cells(line: dict[str, Any]) -> dict[str, Any]:
    """An answer as the tables of crg predict have it, where a person's word is the label."""
    label = line["corrected"]
    said = {} if label is None else {"label": label, "probability": 1.0, "corrected": True}
    said |= {"none_of_these": False} if said else {}
    return {**line, "path": line["name"], **said}


@router.get("/sessions/{id}/state", **files(404, 422, 503, **{OCTETS: BINARY}))
async def download_state(request: Request, id: str) -> Response:
    """The state of the session, as crg.load reads it."""
    service, content = service_of(request), b""

    def apply(learner: Learner, _: Any) -> list[Event]:
        nonlocal content
        content = learner.adapter.content()
        return []

    await service.learn(id, apply)
    headers = {"Content-Disposition": f'attachment; filename="session-{id[:8]}.crg"'}
    return Response(content, headers=headers, media_type=OCTETS)


@router.get("/sessions/{id}/images/{step}/thumbnail", **files(404, 422, **{"image/jpeg": BINARY}))
async def thumbnail(request: Request, id: str, step: Step) -> Response:
    """A small copy of an image."""
    service = service_of(request)
    row = await service.row(id)
    jpeg = await service.run(service.log.thumbnail, row.number, step)
    if jpeg is None:
        raise ProblemError(404, f"No thumbnail of image {step} is kept: only the last ones are.")
    return Response(jpeg, headers={"Cache-Control": _FOR_EVER}, media_type="image/jpeg")


@router.get("/sessions/{id}/images/{step}", **files(404, 422, **{"image/*": BINARY}))
async def image(request: Request, id: str, step: Step) -> Response:
    """An image as it came, if images are kept."""
    service = service_of(request)
    row = await service.row(id)
    path = service.states.image_path(row.id, step)
    answered = await service.run(service.log.image, row.number, step)
    if answered is None or not path.is_file():
        raise ProblemError(404, f"Image {step} is not kept: set keep_images in the --config file.")
    media_type = await service.run(_media_type, path)
    return FileResponse(path, headers={"Cache-Control": _FOR_EVER}, media_type=media_type)


def _media_type(path: pathlib.Path) -> str:
    with Image.open(path) as opened:
        return Image.MIME.get(opened.format or "", OCTETS)


@router.post(
    "/zero-shot",
    responses=answers([schema.SCORE], 400, 404, 408, 413, 415, 422, 503),
    openapi_extra=body(schema.NewScores),
)
async def zero_shot(request: Request, session: Annotated[str | None, Query()] = None) -> Response:
    """Score candidate labels for an image, the best first.

    Without a session the scores are the model's own, and nothing is learnt or kept. A session
    learns the image, and the labels become its classes.
    """
    service = service_of(request)
    async with content_of(request, service.config.max_bytes * 4 // 3 + _LABEL_BYTES) as content:
        asked, image = await service.run(_scores_asked, request, content)
        labels, template = asked.candidate_labels, asked.hypothesis_template
        row = None if session is None else await service.row(session)
        if row is not None and template is not None:
            raise InputError("A session has the server's templates: leave hypothesis_template out.")
        if row is not None:
            service.config.check_room(len(labels), 1, size_of(row, len(labels)))
        text = await service.encode_names(labels, template)
        task = Task(labels, text, service.encoder.logit_scale)
        if row is None:
            return as_json(await _scores(service, task, image))
        views = row.start["views"]
        [*_, last], _ = await learn_images(service, row.id, [(None, image)], views, task=task)
    top = json.decode(last)["top"]
    return as_json([{"score": each["probability"], "label": each["label"]} for each in top])


def _scores_asked(request: Request, content: bytes) -> tuple[schema.Candidates, bytes]:
    """The labels of a request, and its image."""
    config = service_of(request).config
    if request.headers.get("content-type", "").partition(";")[0].lower() != "application/json":
        raise ProblemError(415, "The body is not declared as JSON: send it as application/json.")
    new = parsed(schema.NewScores, content)
    if (n := len(new.parameters.candidate_labels)) > config.max_classes:
        raise InputError(f"There are {n} labels: give at most {config.max_classes}.")
    check_template(new.parameters.hypothesis_template or "{}")
    try:  # browsers write data:image/png;base64, before it
        image = base64.b64decode(new.inputs.rpartition(",")[2], validate=True)
    except ValueError:
        raise InputError("inputs is not base64: encode the bytes of an image file.") from None
    if len(image) > (most := config.max_bytes):
        raise ProblemError(413, f"The image has more than {most:,} bytes: scale it down.")
    return new.parameters, image


async def _scores(service: Service, task: Task, image: bytes) -> Scores:
    service.queue.take(1)
    try:
        features, _ = await service.batcher.encode(image, 1)
    finally:
        service.queue.give_back(1)
    prediction = await service.run(create("zero_shot", task).step, features)
    return scores_of(prediction, task.class_names)
