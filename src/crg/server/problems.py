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


class ProblemError(Exception):
    """A request is refused: a status, one sentence that names the remedy, perhaps more fields."""

    def __init__(
        self, status: int, detail: str, *, retry_after: int | None = None, **more: Any
    ) -> None:
        super().__init__(detail)
        self.status, self.detail, self.more = status, detail, more
        self.headers = {} if retry_after is None else {"Retry-After": str(retry_after)}


def refused(error: InputError, **more: Any) -> ProblemError:
    """Bad input as a problem."""
    return ProblemError(422, str(error), **more)


def response(problem: ProblemError, headers: Mapping[str, str] | None = None) -> Response:
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
    """Answer every error of the application with a problem document."""
    for kind in (ProblemError, InputError, HTTPException, RequestValidationError, ClientDisconnect):
        app.add_exception_handler(kind, _answer_to)


async def _answer_to(_: Request, error: Exception) -> Response:
    match error:
        case ProblemError():
            return response(error)
        case InputError():
            return response(refused(error))
        case HTTPException():
            detail = _PLAIN.get(error.status_code, str(error.detail))
            return response(ProblemError(error.status_code, detail), error.headers)
        case RequestValidationError():
            return response(ProblemError(422, invalid_sentence(error.errors()[0])))
    return response(ProblemError(400, "The request broke off: send it again."))


def invalid_sentence(first: Mapping[str, Any]) -> str:
    """The first complaint of pydantic as a sentence."""
    where = ".".join(str(part) for part in first["loc"] if part not in ("body", "query", "path"))
    what = str(first["msg"]).rstrip(".")
    what = f"{what[:1].lower()}{what[1:]}"
    return f"{where or 'The body'} is not valid ({what}): see /openapi.json."
