"""The bodies of requests and answers, as OpenAPI describes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StrictInt, StrictStr

from crg.methods.registry import DEFAULT
from crg.server.problems import MEDIA_TYPE

Name = Annotated[StrictStr, Field(min_length=1, max_length=500)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


class NewSession(_Strict):
    """Classes to tell apart, and the method that adapts."""

    classes: Annotated[list[Name], Field(min_length=2, examples=[["red circle", "blue square"]])]
    method: Annotated[StrictStr, Field(examples=[DEFAULT])] = DEFAULT
    options: Annotated[dict[str, Any], Field(examples=[{}])] = {}
    views: Annotated[StrictInt, Field(ge=1, examples=[1])] = 1


class NewFeatures(_Strict):
    """The features of one image, (D,) or (V, D) with the original first."""

    features: Annotated[list[float] | list[list[float]], Field(min_length=1)]
    name: Annotated[StrictStr, Field(max_length=200, examples=["7.png"])] | None = None


class NewCorrection(_Strict):
    """What a person says that an image shows."""

    image: Annotated[StrictInt, Field(ge=1, lt=2**53, examples=[7])]
    label: Annotated[Name, Field(examples=["blue square"])]


class NewClass(_Strict):
    """A class to be added."""

    name: Annotated[Name, Field(examples=["green triangle"])]


class Login(_Strict):
    """The token of the server."""

    token: Annotated[StrictStr, Field(max_length=1000, examples=["a secret of 16 characters"])]


class Score(BaseModel):
    """A class and its probability."""

    label: str
    probability: float


class Answer(BaseModel):
    """What an image shows, with and without adaptation."""

    step: Annotated[int, Field(examples=[7])]
    event: int
    at: float
    name: str | None
    label: str
    probability: float
    top: list[Score]
    zero_shot_label: str
    zero_shot_probability: float
    changed: bool
    thumbnail: bool


class Answers(BaseModel):
    """One answer for each image, in their order."""

    answers: list[Answer]


class Correction(BaseModel):
    """A correction that was learnt."""

    event: int
    at: float
    step: int
    label: str
    was: str


class Classes(BaseModel):
    """A class came or went."""

    event: int
    at: float
    name: str
    classes: list[str]


class Curves(BaseModel):
    """Running figures, at most 100 points."""

    step: list[int]
    probability: list[float]
    changed: list[float]
    per_class: dict[str, list[int]]


class SessionInfo(BaseModel):
    """A session: how it was started, and what came of it."""

    id: str
    created: float
    last_used: float
    model: str
    method: str
    options: dict[str, Any]
    views: int
    classes: list[str]
    event: int
    images: int
    changed: int
    corrections: int
    per_class: dict[str, int]
    curves: Curves


class SessionLine(BaseModel):
    """A session in a list."""

    id: str
    created: float
    last_used: float
    method: str
    views: int
    n_classes: int
    images: int


class SessionList(BaseModel):
    """Sessions, newest first; ``next`` continues the list as ``before``."""

    sessions: list[SessionLine]
    next: int | None


class About(BaseModel):
    """What this server is and allows."""

    version: str
    model: str
    width: int
    default_method: str
    methods: list[str]
    templates: list[str]
    limits: dict[str, int]
    keep_images: bool


class ProblemDocument(BaseModel):
    """An error (RFC 9457)."""

    type: Annotated[str, Field(examples=["about:blank"])]
    title: Annotated[str, Field(examples=["Unprocessable Content"])]
    status: Annotated[int, Field(examples=[422])]
    detail: Annotated[str, Field(examples=["The number of classes is 1: give at least two."])]
    image: int | None = None


_REASONS = {
    400: "The request is malformed.",
    401: "The token is missing or wrong.",
    403: "The Host or the Origin is not allowed.",
    404: "There is no such session or image.",
    408: "The body took too long.",
    409: "The idempotency key was used for another request.",
    413: "The request is too large.",
    415: "The body is of another kind.",
    422: "The input is refused.",
    429: "Too much at once; Retry-After says when to try again.",
    500: "The server failed.",
    503: "The server is stopping, or its disk is full.",
}


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The errors of a route; some can come anywhere."""
    content = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/ProblemDocument"}}}
    return {
        status: {"description": _REASONS[status], "content": content}
        for status in sorted({*statuses, 401, 403, 429, 500})
    }


def body(model: type[BaseModel], others: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The request body of a route: JSON of a model, or other media types with their schemas."""
    schemas = {"application/json": model.model_json_schema(), **(others or {})}
    content = {kind: {"schema": schema} for kind, schema in schemas.items()}
    return {"requestBody": {"required": True, "content": content}}
