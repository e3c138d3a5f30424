"""Errors as problem documents (RFC 9457), with the sentences of the command line."""

from __future__ import annotations

import http
from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from msgspec import json
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from crg.types import InputError, printable

MEDIA_TYPE = "application/problem+json"
_PLAIN = {
    404: "There is nothing at this address: /openapi.json lists what there is.",
    405: "This address does not take this method: the header Allow says which it takes.",
}


class Problem(Exception):  # noqa: N818 - the name of RFC 9457
    """A request is refused: a status, one sentence that names the remedy, perhaps more fields."""

    def __init__(
        self, status: int, detail: str, *, retry_after: int | None = None, **more: Any
    ) -> None:
        super().__init__(detail)
        self.status, self.detail, self.more = status, detail, more
        self.headers = {} if retry_after is None else {"Retry-After": str(retry_after)}


def refused(error: InputError, **more: Any) -> Problem:
    """The problem that bad input is."""
    return Problem(422, str(error), **more)


def response(problem: Problem, headers: Mapping[str, str] | None = None) -> Response:
    """A problem as an answer."""
    document = {
        "type": "about:blank",
        "title": http.HTTPStatus(problem.status).phrase,
        "status": problem.status,
        "detail": printable(problem.detail),
        **problem.more,
    }
    return Response(
        json.encode(document),
        problem.status,
        {**problem.headers, **(headers or {})},
        media_type=MEDIA_TYPE,
    )


def add_handlers(app: FastAPI) -> None:
    """Have every error of the application answered by a problem document."""
    app.add_exception_handler(Problem, _known)
    app.add_exception_handler(InputError, _input)
    app.add_exception_handler(HTTPException, _plain)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(ClientDisconnect, _gone)


async def _known(_: Request, error: Exception) -> Response:
    assert isinstance(error, Problem)
    return response(error)


async def _input(_: Request, error: Exception) -> Response:
    assert isinstance(error, InputError)
    return response(refused(error))


async def _plain(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    detail = _PLAIN.get(error.status_code, str(error.detail))
    return response(Problem(error.status_code, detail), error.headers)


async def _invalid(_: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    return response(Problem(422, invalid_sentence(error.errors()[0])))


def invalid_sentence(first: Mapping[str, Any]) -> str:
    """The first complaint of pydantic as a sentence."""
    where = ".".join(str(part) for part in first["loc"] if part not in ("body", "query", "path"))
    what = str(first["msg"]).rstrip(".")
    what = f"{what[:1].lower()}{what[1:]}"
    return f"{where or 'The body'} is not valid ({what}): see /openapi.json."


async def _gone(_: Request, __: Exception) -> Response:
    return response(Problem(400, "The request broke off: send it again."))
