"""Reading a request: no more bytes than allowed, no longer than allowed."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator
from typing import TypeAlias, TypeVar

from fastapi import Request
from pydantic import BaseModel, ValidationError
from python_multipart.multipart import parse_options_header
from starlette.datastructures import UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser

from crg.server.limits import ServerConfig
from crg.server.schema import ProblemError, invalid_sentence
from crg.types import printable

Model = TypeVar("Model", bound=BaseModel)
Upload: TypeAlias = tuple[str | None, bytes]  # name and content of an image
_NAME = 200  # characters of a file name that are kept
_FIELDS = 10  # parts of a form that are no images
JSON_BYTES = 4_000_000  # of a request that carries no image


class Budget:
    """An amount that may be in use at once; a user gives back what it took."""

    def __init__(self, most: int, what: str, remedy: str) -> None:
        self._most, self.used = most, 0
        self._sentence = f"{what}: {remedy}."

    def take(self, amount: int) -> None:
        """Use so much more; refuse with 429 where that is too much."""
        if self.used + amount > self._most:
            raise ProblemError(429, self._sentence, retry_after=1)
        self.used += amount

    def give_back(self, amount: int) -> None:
        """Use so much less."""
        self.used -= amount


@contextlib.asynccontextmanager
async def body_of(
    request: Request, most: int, budget: Budget, config: ServerConfig
) -> AsyncIterator[bytes]:
    """The body of a request, at most ``most`` bytes, which count as long as they are used."""
    declared = request.headers.get("content-length", "0")
    if declared.isdecimal() and int(declared) > most:
        raise _too_large(most)
    chunks: list[bytes] = []
    taken = 0
    try:
        try:
            async with asyncio.timeout(config.body_timeout):
                async for chunk in request.stream():
                    if taken + len(chunk) > most:
                        raise _too_large(most)
                    budget.take(len(chunk))
                    taken += len(chunk)
                    chunks.append(chunk)
        except TimeoutError:
            raise ProblemError(
                408,
                f"The body did not arrive within {config.body_timeout} seconds: "
                "send it faster or in parts.",
            ) from None
        yield b"".join(chunks)
    finally:
        budget.give_back(taken)


def parsed(model: type[Model], body: bytes) -> Model:
    """A JSON body as an instance of ``model``."""
    try:
        return model.model_validate_json(body)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        if first["type"] == "json_invalid":
            raise ProblemError(400, f"The body is not JSON ({first['msg']}): correct it.") from None
        raise ProblemError(422, invalid_sentence(first)) from None


def kind_of(request: Request, *wanted: str) -> str:
    """The media type of the body, which must be one of ``wanted``; any image is ``image/*``."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    found = "image/*" if kind.startswith("image/") else kind
    if found not in wanted:
        listed = " or ".join(filter(None, (", ".join(wanted[:-1]), wanted[-1])))
        raise ProblemError(415, f"The body is of type {kind or 'none'!r}: send it as {listed}.")
    return found


async def uploads_of(
    request: Request, body: bytes, form: bool, config: ServerConfig
) -> list[Upload]:
    """The images of a request, whose body is a form or one image."""
    if form:
        uploads = await _form(request, body, config)
    else:
        uploads = [(named(request.query_params.get("name")), body)]
    if not uploads:
        raise ProblemError(422, "The request holds no image: send a part with a file name.")
    for place, (_, content) in enumerate(uploads):
        if len(content) > config.max_bytes:
            raise ProblemError(413, f"The image has more than {config.max_bytes:,} bytes: "
                                    "scale it down.", image=place)  # fmt: skip
    return uploads


def named(name: str | None) -> str | None:
    """A file name as it is kept: one line of text, not too long; it never names a file here."""
    return printable(name)[:_NAME] if name else None


async def _form(request: Request, body: bytes, config: ServerConfig) -> list[Upload]:
    """The parts of a form that have a file name."""
    boundary = parse_options_header(request.headers["content-type"])[1].get(b"boundary")
    if not boundary or b"--%b--" % boundary not in body:
        raise ProblemError(400, "The form does not end with its boundary: send it again.")

    async def stream() -> AsyncGenerator[bytes, None]:
        yield body

    parser = MultiPartParser(
        request.headers, stream(), max_files=config.max_images, max_fields=_FIELDS
    )
    parser.spool_max_size = len(body) + 1  # so that no file is written
    try:
        form = await parser.parse()
    except MultiPartException as error:
        status = 413 if error.message.startswith("Too many") else 400
        reason = error.message.rstrip(".").replace(". ", ", ")
        raise ProblemError(status, f"The form is refused ({reason}): send another.") from None
    files = [file for _, file in form.multi_items() if isinstance(file, UploadFile)]
    uploads = [(named(file.filename), file.file.read()) for file in files]
    await form.close()
    return uploads


def _too_large(most: int) -> ProblemError:
    return ProblemError(413, f"The request has more than {most:,} bytes: send less at once.")
