"""Reading what a request carries: never more than it may, never longer than it may take."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, TypeVar

from fastapi import Request
from pydantic import BaseModel, ValidationError
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from crg.server.actions import Upload
from crg.server.limits import Budget, Limits
from crg.server.problems import Problem, invalid_sentence
from crg.types import printable

if TYPE_CHECKING:
    from python_multipart.multipart import MultipartCallbacks

Model = TypeVar("Model", bound=BaseModel)
_NAME = 200  # characters of a file name that are kept
_FIELDS = 10  # parts of a form that are no images
JSON_BYTES = 4_000_000  # of a request that carries no image


@contextlib.asynccontextmanager
async def body_of(
    request: Request, most: int, budget: Budget, limits: Limits
) -> AsyncIterator[bytes]:
    """The body of a request, at most ``most`` bytes; they count as long as they are used."""
    declared = request.headers.get("content-length", "0")
    if declared.isdecimal() and int(declared) > most:
        raise _too_large(most)
    held = _Held(most, budget)
    try:
        async with asyncio.timeout(limits.body_timeout):
            async for chunk in request.stream():
                held.add(chunk)
    except TimeoutError:
        held.release()
        raise Problem(408, f"The body did not arrive within {limits.body_timeout} seconds: "
                           "send it faster or in parts.") from None  # fmt: skip
    except BaseException:
        held.release()
        raise
    try:
        yield held.content()
    finally:
        held.release()


class _Held:
    """Bytes of a body that has arrived so far."""

    def __init__(self, most: int, budget: Budget) -> None:
        self._most, self._budget, self._taken = most, budget, 0
        self._chunks: list[bytes] = []

    def add(self, chunk: bytes) -> None:
        if self._taken + len(chunk) > self._most:
            raise _too_large(self._most)
        self._budget.take(len(chunk))
        self._taken += len(chunk)
        self._chunks.append(chunk)

    def content(self) -> bytes:
        return self._chunks[0] if len(self._chunks) == 1 else b"".join(self._chunks)

    def release(self) -> None:
        self._budget.give_back(self._taken)


def parsed(model: type[Model], body: bytes) -> Model:
    """A JSON body as the model says."""
    try:
        return model.model_validate_json(body)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        if first["type"] == "json_invalid":
            raise Problem(400, f"The body is not JSON ({first['msg']}): correct it.") from None
        raise Problem(422, invalid_sentence(first)) from None


def kind_of(request: Request) -> str:
    """The media type of the body, without parameters."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def uploads_of(request: Request, body: bytes, limits: Limits) -> list[Upload]:
    """The images of a request, as one body or as a form."""
    if kind_of(request) == "multipart/form-data":
        uploads = _form(request.headers["content-type"], body, limits.max_images)
    else:
        uploads = [Upload(named(request.query_params.get("name")), body)]
    if not uploads:
        raise Problem(422, "The request holds no image: send a part with a file name.")
    for place, upload in enumerate(uploads):
        if len(upload.content) > limits.max_bytes:
            raise Problem(413, f"The image has more than {limits.max_bytes:,} bytes: "
                               "scale it down.", image=place)  # fmt: skip
    return uploads


def named(name: str | None) -> str | None:
    """A file name as it is kept: text of one line, not too long; it never names a file here."""
    return printable(name)[:_NAME] if name else None


def _form(content_type: str, body: bytes, most: int) -> list[Upload]:
    parts = _Parts(most)
    _, options = parse_options_header(content_type)
    if not options.get(b"boundary"):
        raise Problem(400, "The form names no boundary: send it as multipart/form-data.")
    try:
        parser = MultipartParser(options[b"boundary"], parts.callbacks())
        parser.write(body)
        parser.finalize()
    except FormParserError as error:
        raise Problem(400, f"The form is malformed ({error}): send it again.") from None
    if not parts.ended:
        raise Problem(400, "The form ends before its last boundary: send it again.")
    return parts.uploads


class _Parts:
    """Gathers the parts of a form that have a file name."""

    def __init__(self, most: int) -> None:
        self.uploads: list[Upload] = []
        self.ended = False
        self._most, self._count = most, 0

    def callbacks(self) -> MultipartCallbacks:
        return {
            "on_part_begin": self._begin,
            "on_header_field": self._field,
            "on_header_value": self._value,
            "on_header_end": self._header,
            "on_part_data": self._data,
            "on_part_end": self._end,
            "on_end": self._finish,
        }

    def _begin(self) -> None:
        self._count += 1
        if self._count > self._most + _FIELDS:
            raise Problem(413, f"The form has more than {self._count - 1} parts: send fewer.")
        self._name: bytes | None = None
        self._headers = [b"", b""]
        self._content: list[bytes] = []

    def _field(self, data: bytes, start: int, end: int) -> None:
        self._headers[0] += data[start:end]

    def _value(self, data: bytes, start: int, end: int) -> None:
        self._headers[1] += data[start:end]

    def _header(self) -> None:
        field, value = self._headers
        self._headers = [b"", b""]
        if field.lower() == b"content-disposition":
            self._name = parse_options_header(value)[1].get(b"filename")

    def _data(self, data: bytes, start: int, end: int) -> None:
        if self._name is not None:
            self._content.append(data[start:end])

    def _end(self) -> None:
        if self._name is None:
            return
        if len(self.uploads) == self._most:
            raise Problem(413, f"The request holds more than {self._most} images: send fewer.")
        name = named(self._name.decode("utf-8", "replace"))
        self.uploads.append(Upload(name, b"".join(self._content)))

    def _finish(self) -> None:
        self.ended = True


def _too_large(most: int) -> Problem:
    return Problem(413, f"The request has more than {most:,} bytes: send less at once.")
