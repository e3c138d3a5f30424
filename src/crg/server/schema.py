"""The bodies of requests and answers, as OpenAPI describes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StrictInt, StrictStr

from crg.methods.registry import DEFAULT
from crg.server.problems import MEDIA_TYPE

Name = Annotated[StrictStr, Field(min_length=1, max_length=500)]


_BRIEF = {
    "id": "4f09c2d1a6b84e3fb0c7d5e6f7a8b9c0",
    "created": 1763316000.0,
    "last_used": 1763316009.5,
    "method": DEFAULT,
    "views": 1,
    "images": 7,
}


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


def _like(**example: Any) -> ConfigDict:
    """A model whose description has an example of all its fields."""
    return ConfigDict(json_schema_extra={"examples": [example]})


class NewSession(_Strict):
    """Classes to tell apart, and the method that adapts."""

    classes: Annotated[
        list[Name],
        Field(json_schema_extra={"minItems": 2}, examples=[["red circle", "blue square"]]),
    ]
    method: Annotated[StrictStr, Field(examples=[DEFAULT])] = DEFAULT
    options: Annotated[dict[str, Any], Field(examples=[{}])] = {}
    views: Annotated[StrictInt, Field(json_schema_extra={"minimum": 1}, examples=[1])] = 1


class NewFeatures(_Strict):
    """The features of one image, (D,) or (V, D) with the original first."""

    features: Annotated[
        list[float] | list[list[float]], Field(min_length=1, examples=[[0.6, 0.0, 0.8]])
    ]
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

    model_config = _like(label="red circle", probability=0.93)

    label: str
    probability: float


class Answer(BaseModel):
    """What an image shows, with and without adaptation."""

    model_config = _like(
        step=7, event=9, at=1763316000.25, name="7.png", label="red circle", probability=0.93,
        top=[{"label": "red circle", "probability": 0.93},
             {"label": "blue square", "probability": 0.07}],
        zero_shot_label="blue square", zero_shot_probability=0.51, changed=True, thumbnail=True,
    )  # fmt: skip

    step: int
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

    model_config = _like(event=10, at=1763316004.5, step=7, label="blue square", was="red circle")

    event: int
    at: float
    step: int
    label: str
    was: str


class Classes(BaseModel):
    """A class came or went."""

    model_config = _like(
        event=11, at=1763316009.5, name="green triangle",
        classes=["red circle", "blue square", "green triangle"],
    )  # fmt: skip

    event: int
    at: float
    name: str
    classes: list[str]


class Curves(BaseModel):
    """Running figures, at most 100 points."""

    model_config = _like(
        step=[4, 7], probability=[0.81, 0.9], changed=[0.0, 0.33],
        per_class={"red circle": [3, 5], "blue square": [1, 2]},
    )  # fmt: skip

    step: list[int]
    probability: list[float]
    changed: list[float]
    per_class: dict[str, list[int]]


class SessionInfo(BaseModel):
    """A session: how it was started, and what came of it."""

    model_config = _like(
        **_BRIEF, model="mini", options={"half_life": 0.0}, classes=["red circle", "blue square"],
        event=9, changed=1, corrections=1, per_class={"red circle": 5, "blue square": 2},
    )  # fmt: skip

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

    model_config = _like(**_BRIEF, n_classes=2)

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
    next: Annotated[int | None, Field(examples=[42])]


class About(BaseModel):
    """What this server is and allows."""

    model_config = _like(
        version="0.1.0", model="mini", width=256, default_method=DEFAULT, methods=[DEFAULT],
        templates=["a photo of a {}."], limits={"max_images": 32}, keep_images=False,
    )  # fmt: skip

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
    image: Annotated[int | None, Field(examples=[0])] = None


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
