"""What clients send and get, as OpenAPI describes it; errors are problem documents (RFC 9457)."""

from __future__ import annotations

import http
import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from fastapi import Response
from fastapi.exceptions import RequestValidationError
from msgspec import Meta, Struct, json
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from crg.methods.registry import DEFAULT
from crg.types import InputError, printable

Name = Annotated[str, Meta(min_length=1, max_length=500)]
SessionName = Annotated[str, Meta(max_length=100, examples=["kitchen camera"])]


class NewSession(Struct, forbid_unknown_fields=True):
    """Classes to choose from, and the method that adapts."""

    classes: Annotated[
        list[Name],
        Meta(extra_json_schema={"minItems": 2}, examples=[["red circle", "blue square"]]),
    ]
    method: Annotated[str, Meta(examples=[DEFAULT])] = DEFAULT
    options: Annotated[dict[str, Any], Meta(examples=[{}])] = {}
    views: Annotated[int, Meta(extra_json_schema={"minimum": 1}, examples=[1])] = 1
    name: SessionName | None = None
    none_of_these: Annotated[float | Literal["auto"] | None, Meta(examples=["auto"])] = None
    sets: Annotated[float | None, Meta(examples=[0.9])] = None


class NewName(Struct, forbid_unknown_fields=True):
    """Another name for a session; an empty one removes it."""

    name: SessionName


class NewFeatures(Struct, forbid_unknown_fields=True):
    """The features of one image, (D,) or (V, D) with the original first."""

    features: Annotated[list[float | list[float]], Meta(min_length=1, examples=[[0.6, 0.0, 0.8]])]
    name: Annotated[str, Meta(max_length=200, examples=["7.png"])] | None = None


class NewCorrection(Struct, forbid_unknown_fields=True):
    """The label that a person gives an image."""

    image: Annotated[int, Meta(ge=1, lt=2**53, examples=[7])]
    label: Annotated[Name, Meta(examples=["blue square"])]


class NewClass(Struct, forbid_unknown_fields=True):
    """A class to add."""

    name: Annotated[Name, Meta(examples=["green triangle"])]


class Candidates(Struct):
    """The labels to score, and the prompt that they stand in."""

    candidate_labels: Annotated[list[Name], Meta(examples=[["red circle", "blue square"]])]
    hypothesis_template: Annotated[str, Meta(max_length=500, examples=["art of {}."])] | None = None


class NewScores(Struct):
    """An image in base64 and labels, as clients of Hugging Face's inference API send them."""

    inputs: Annotated[str, Meta(extra_json_schema={"contentEncoding": "base64"})]
    parameters: Candidates


class Login(Struct, forbid_unknown_fields=True):
    """The token of the server."""

    token: Annotated[str, Meta(max_length=1000, examples=["a secret of 16 characters"])]


# One example of every answer, from which its schema is made.
ANSWER = {
    "step": 7, "event": 9, "at": 1763316000.25, "name": "7.png",
    "label": "red circle", "probability": 0.93,
    "top": [{"label": "red circle", "probability": 0.93},
            {"label": "blue square", "probability": 0.07}],
    "zero_shot_label": "blue square", "zero_shot_probability": 0.51,
    "changed": True, "outside": 0.41, "none_of_these": False,
    "class_set": ["red circle"], "missing_labels": 3, "thumbnail": True,
}  # fmt: skip
_EVENT = {"event": 10, "at": 1763316004.5}
CORRECTION = {**_EVENT, "step": 7, "label": "blue square", "was": "red circle"}
CLASSES = {**_EVENT, "name": "green triangle"}
RENAMED = {**_EVENT, "name": "kitchen camera"}
SESSION_LINE = {
    "id": "4f09c2d1a6b84e3fb0c7d5e6f7a8b9c0", "name": "kitchen camera", "created": 1763316000.0,
    "last_used": 1763316009.5, "method": DEFAULT, "views": 1, "n_classes": 2, "images": 7,
}  # fmt: skip
SESSION = {
    **SESSION_LINE, "model": "mini", "options": {"half_life": 0.0},
    "decisions": {"none_of_these": "auto", "sets": 0.9},
    "classes": ["red circle", "blue square"], "event": 9, "changed": 1, "corrections": 1,
    "per_class": {"red circle": 5, "blue square": 2},
    "curves": {"step": [4, 7], "probability": [0.81, 0.9], "changed": [0.0, 0.33],
               "per_class": {"red circle": [3, 5], "blue square": [1, 2]}},
}  # fmt: skip
ABOUT = {
    "version": "0.1.0", "model": "mini", "knows": "rendered shapes only",
    "examples": {"images": 12, "classes": ["red circle"]}, "width": 256, "default_method": DEFAULT,
    "methods": [DEFAULT], "templates": ["a photo of a {}."], "limits": {"max_images": 32},
    "keep_images": False,
}  # fmt: skip
SCORE = {"score": 0.93, "label": "red circle"}
_PROBLEM = {
    "type": "about:blank", "title": "Unprocessable Content", "status": 422,
    "detail": "The number of classes is 1: give at least two.", "image": 1,
}  # fmt: skip
_MAPS = ("options", "decisions", "per_class", "limits")  # fields whose keys vary
_NULLABLE = ("name", "next", "examples")
_OPTIONAL = ("image", "none_of_these", "class_set", "missing_labels")
_TYPES = {bool: "boolean", int: "integer", float: "number", str: "string"}
_ADDED = {401: {"WWW-Authenticate": "Bearer"}, 429: {"Retry-After": "1"}, 503: {"Retry-After": "5"}}
_PLAIN = {
    404: "There is nothing at this address: /openapi.json lists what there is.",
    405: "This address does not take this method: the header Allow says which it takes.",
}
_MEDIA_TYPE = "application/problem+json"
_SHOWN = 500  # characters at either end of a long sentence
BINARY = {"type": "string", "format": "binary"}
TEXT = {"type": "string"}


def _schema_of(example: Any) -> dict[str, Any]:
    """The JSON schema of values like ``example``."""
    if isinstance(example, list):
        return {"type": "array", "items": _schema_of(example[0])}
    if not isinstance(example, dict):
        return {"type": _TYPES[type(example)]}
    fields = {
        name: {"type": "object"} if name in _MAPS else _schema_of(value)
        for name, value in example.items()
    }
    for name in fields.keys() & set(_NULLABLE):
        fields[name] = {"anyOf": [fields[name], {"type": "null"}]}
    required = [name for name in fields if name not in _OPTIONAL]
    return {"type": "object", "properties": fields, "required": required}


def answers(example: Any, status: int = 200) -> dict[int | str, dict[str, Any]]:
    """The responses of a route that answers with JSON like ``example``."""
    content = {"application/json": {"schema": _schema_of(example), "example": example}}
    return {status: {"description": http.HTTPStatus(status).phrase, "content": content}}


def files(**kinds: Mapping[str, Any]) -> dict[str, Any]:
    """Options of a route that answers with media types other than JSON, with these schemas."""
    content = {kind: {"schema": schema} for kind, schema in kinds.items()}
    responses = {200: {"description": "OK", "content": content}}
    return {"response_class": Response, "responses": responses}


def problems() -> dict[int | str, dict[str, Any]]:
    """The response of every route that refuses a request."""
    content = {_MEDIA_TYPE: {"schema": _schema_of(_PROBLEM), "example": _PROBLEM}}
    return {"default": {"description": "Refused", "content": content}}


def body(model: type[Struct], others: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The request body of a route: JSON of a model, or other media types with their schemas."""
    parts = json.schema(model)["$defs"]
    own = parts[model.__name__]
    for field in own["properties"].values():
        if "$ref" in field:  # which would point nowhere in the document of all routes
            field |= parts[field.pop("$ref").rpartition("/")[2]]
    schemas = {"application/json": own, **(others or {})}
    content = {kind: {"schema": schema} for kind, schema in schemas.items()}
    return {"requestBody": {"required": True, "content": content}}


class ProblemError(Exception):
    """A request is refused: a status, one sentence that names the remedy, perhaps more fields."""

    def __init__(self, status: int, detail: str, **more: Any) -> None:
        super().__init__(detail)
        if len(detail) > 2 * _SHOWN:  # because of a value that was sent
            detail = f"{detail[:_SHOWN]}...{detail[-_SHOWN:]}"
        self.status, self.detail, self.more = status, detail, more

    def response(self, headers: Mapping[str, str] | None = None) -> Response:
        """The problem document."""
        document = {
            "type": "about:blank", "title": http.HTTPStatus(self.status).phrase,
            "status": self.status, "detail": printable(self.detail), **self.more,
        }  # fmt: skip
        given = {**_ADDED.get(self.status, {}), **(headers or {})}
        return Response(json.encode(document), self.status, given, media_type=_MEDIA_TYPE)


def problem_of(error: Exception, data: Path) -> ProblemError:
    """The problem that answers an error; none names a file below ``data``."""
    match error:
        case ProblemError():
            return error
        case InputError() if str(data) not in str(error):
            return ProblemError(422, str(error))
        case InputError() | OSError() | sqlite3.Error():
            remedy = "delete a session to make room, or ask who runs it to read its log."
            return ProblemError(503, f"The server cannot use its disk: {remedy}")
        case HTTPException():
            detail = _PLAIN.get(error.status_code, str(error.detail))
            return ProblemError(error.status_code, detail)
        case RequestValidationError():
            first = error.errors()[0]  # about a path, query or header
            where, what = first["loc"][-1], str(first["msg"]).rstrip(".")
            wrong = f"{where} is not valid ({what[:1].lower()}{what[1:]}): see /openapi.json."
            return ProblemError(422, wrong)
        case ClientDisconnect():
            return ProblemError(400, "The request broke off: send it again.")
    return ProblemError(500, "The server failed: ask who runs it to read its log.")
