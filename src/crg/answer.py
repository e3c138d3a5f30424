"""Answer: what an image shows, with and without adaptation.

A classifier makes it, ``crg predict`` writes it, the service sends it and a notebook shows it.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import Any

import numpy as np
from PIL import Image

from crg.encoders.base import Vectors
from crg.images.preprocessing import Pixels
from crg.ops import softmax
from crg.types import Prediction, Task

_SIDE = 64  # pixels of the small copy that an answer keeps, at most
_DIGITS = 6  # of a probability that is written down


@dataclass(frozen=True, eq=False, repr=False)
class Answer:
    """What an image shows, with and without adaptation."""

    prediction: Prediction
    zero_shot_probs: Vectors  # (K,)
    features: Vectors  # (V, D), of the image and its views
    step: int  # how many images had been seen by then, this one included
    sample_id: str = ""  # what ``Classifier.correct`` knows the image by
    pixels: Pixels | None = None  # (H, W, 3), a small copy of what the model saw
    unsure_below: float = 0.0  # the label is withheld where its probability is lower

    @property
    def label(self) -> str:
        """The class that the method chose; empty where it is unsure."""
        return "" if self.unsure else self.prediction.class_name

    @property
    def probability(self) -> float:
        """The probability of the class that the method chose, also where it is unsure."""
        return float(self.prediction.probs[self.prediction.label])

    @property
    def unsure(self) -> bool:
        """Whether the probability is below ``unsure_below``."""
        return self.probability < self.unsure_below

    @property
    def zero_shot_label(self) -> str:
        """The class that the model chooses without adaptation."""
        return self.prediction.class_names[int(np.argmax(self.zero_shot_probs))]

    @property
    def zero_shot_probability(self) -> float:
        """The probability of the zero-shot label."""
        return float(self.zero_shot_probs.max())

    @property
    def changed(self) -> bool:
        """Whether the method chose another class than zero-shot, sure of it or not."""
        return self.prediction.class_name != self.zero_shot_label

    def top(self, count: int) -> list[tuple[str, float]]:
        """The ``count`` most probable classes with their probabilities, the best first."""
        probs, names = np.asarray(self.prediction.probs), self.prediction.class_names
        best = np.argsort(-probs, kind="stable")[:count]
        return [(names[k], float(probs[k])) for k in best]

    def as_dict(self, top: int = 0) -> dict[str, Any]:
        """The answer as plain values, as files and the service give it.

        ``top`` adds the most probable classes; ``unsure`` is there if a threshold was set.
        """
        facts: dict[str, Any] = {
            "label": self.label,
            "probability": round(self.probability, _DIGITS),
            "zero_shot_label": self.zero_shot_label,
            "zero_shot_probability": round(self.zero_shot_probability, _DIGITS),
            "changed": self.changed,
            "step": self.step,
        }
        if self.unsure_below:
            facts["unsure"] = self.unsure
        if top:
            facts["top"] = [
                {"label": label, "probability": round(probability, _DIGITS)}
                for label, probability in self.top(top)
            ]
        return facts

    def __repr__(self) -> str:
        zero_shot = f"{self.zero_shot_label!r} {self.zero_shot_probability:.3f}"
        ours = f"{self.label!r}, {self.probability:.3f}"
        return f"Answer({ours}, zero-shot {zero_shot}, step {self.step})"

    def _repr_html_(self) -> str:
        """The image beside bars for the most probable classes, adapted and zero-shot."""
        probs, zero_shot = self.prediction.probs.tolist(), self.zero_shot_probs.tolist()
        below = _bars(self.prediction.class_names, probs, zero_shot)
        said = f"image {self.sample_id}, step {self.step}" + ", changed" * self.changed
        return html_card(self.label or "(unsure)", [said], below, _jpeg(self.pixels))


def answer_for(
    task: Task, prediction: Prediction, features: Vectors, step: int, sample_id: str = ""
) -> Answer:
    """A prediction for an image with these unit features (V, D), beside zero-shot."""
    zero_shot = softmax(task.logit_scale * (task.text_features @ features[0]))
    if not prediction.class_names:  # a method that makes its predictions by hand may leave them out
        prediction = replace(prediction, class_names=task.class_names)
    return Answer(prediction, zero_shot, features, step, sample_id)


def small_copy(views: Pixels) -> Pixels:
    """A small copy of the original: every n-th pixel, which takes next to no time."""
    n = -(-views.shape[1] // _SIDE)
    return views[0, ::n, ::n].copy()


def _jpeg(pixels: Pixels | None) -> bytes | None:
    if pixels is None:
        return None
    content = io.BytesIO()
    Image.fromarray(pixels).save(content, "JPEG", quality=90)
    return content.getvalue()


# A notebook shows plain HTML with inline styles, in its own colours; all text is escaped.
_SHOWN = 5  # classes, the most probable ones
_ROW = (
    "display:grid;grid-template-columns:fit-content(18em) 9em 4em auto;gap:0 .8em"
    ";align-items:center;white-space:nowrap"
)
_BAR = "height:.5em;margin:1px 0;background:currentColor"
_NAME = "overflow:hidden;text-overflow:ellipsis"


def html_card(title: str, lines: Iterable[str], body: str, jpeg: bytes | None = None) -> str:
    """HTML of a title, lines of text and ``body``, beside an image if there is one."""
    image = ""
    if jpeg is not None:
        source = f"data:image/jpeg;base64,{base64.b64encode(jpeg).decode()}"
        image = f'<img src="{source}" alt="" style="width:96px;height:96px;border-radius:4px">'
    said = "".join(f'<div style="opacity:.75">{escape(line)}</div>' for line in lines)
    return (
        '<div style="display:flex;gap:1em;align-items:flex-start;line-height:1.5">'
        f"{image}<div><div><b>{escape(title)}</b></div>{said}{body}</div></div>"
    )


def html_counts(numbers: Mapping[str, int]) -> str:
    """HTML of a bar for each name, the largest number first."""
    largest = max(numbers.values(), default=1)
    ordered = sorted(numbers.items(), key=lambda pair: -pair[1])
    rows = [_cells(name, _bar(n / largest), str(n), "") for name, n in ordered]
    return f'<div style="{_ROW}">{"".join(rows)}</div>'


def _bars(names: Sequence[str], probs: Sequence[float], zero_shot: Sequence[float]) -> str:
    """A bar for each of the most probable classes, over a fainter one for zero-shot."""
    best = sorted(range(len(probs)), key=lambda k: -probs[k])[:_SHOWN]
    best += {max(range(len(zero_shot)), key=lambda k: zero_shot[k])} - set(best)
    rows = [
        _cells(
            names[k],
            _bar(probs[k]) + _bar(zero_shot[k], ";opacity:.35"),
            f"{probs[k]:.1%}",
            f"zero-shot {zero_shot[k]:.1%}",
        )
        for k in best
    ]
    return f'<div style="{_ROW}">{"".join(rows)}</div>'


def _cells(name: str, bar: str, number: str, beside: str) -> str:
    return (
        f'<div style="{_NAME}" title="{escape(name)}">{escape(name)}</div><div>{bar}</div>'
        f'<div style="text-align:right">{number}</div><div style="opacity:.6">{beside}</div>'
    )


def _bar(fraction: float, more: str = "") -> str:
    return f'<div style="{_BAR};width:{max(fraction, 0.003):.1%}{more}"></div>'
