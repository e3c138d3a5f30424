"""Answer: what an image shows, with and without adaptation.

A classifier makes it, ``crg predict`` writes it, the service sends it and a notebook shows it.
"""

from __future__ import annotations

import base64
import io
from dataclasses import asdict, dataclass, replace
from html import escape
from typing import Any

import numpy as np
from PIL import Image

from crg.encoders.base import Vectors
from crg.images.preprocessing import Pixels
from crg.ops import softmax
from crg.types import Prediction, Task

NONE_OF_THESE = "none of these"
_SIDE = 64  # pixels of the small copy that an answer keeps, at most
_DIGITS = 6  # of a probability that is written down
COLUMNS = (  # of tables, from a file or the service
    "path", "label", "probability", "zero_shot_label", "zero_shot_probability", "changed",
    "outside", "step", "error", "corrected",
)  # fmt: skip


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
        """The class that the method chose; empty where it is unsure or none of these."""
        return "" if self.unsure or self.none_of_these else self.prediction.class_name

    @property
    def probability(self) -> float:
        """The probability of the class that the method chose, also where it is unsure."""
        return float(self.prediction.probs[self.prediction.label])

    @property
    def unsure(self) -> bool:
        """Whether the probability is below ``unsure_below``, of an image that is of a class."""
        return self.probability < self.unsure_below and not self.none_of_these

    @property
    def outside(self) -> float:
        """A score in [0, 1] that the image is of no class; a typical one of the stream has 0.5."""
        return self.prediction.decision.outside

    @property
    def none_of_these(self) -> bool:
        """Whether the image is taken for none of the classes, and was not learnt from."""
        return bool(self.prediction.decision.none_of_these)

    @property
    def class_set(self) -> list[str]:
        """Classes among which the true one is as often as was asked for; empty without sets."""
        return self.prediction.decision.class_set or []

    @property
    def decisions(self) -> dict[str, Any]:
        """``outside`` and what else was asked for, as plain values.

        ``missing_labels`` says how many labelled images are missing until there are sets.
        """
        facts = asdict(self.prediction.decision)
        facts["outside"] = round(self.outside, 4)
        return {
            name: value for name, value in facts.items() if value is not None and value == value
        }

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
        """The answer as plain values, as a file has it; probabilities have six digits.

        ``top`` adds the most probable classes; ``unsure``, ``none_of_these`` and ``class_set``
        are there if they were asked for.
        """
        facts: dict[str, Any] = {
            "label": self.label,
            "probability": round(self.probability, _DIGITS),
            "zero_shot_label": self.zero_shot_label,
            "zero_shot_probability": round(self.zero_shot_probability, _DIGITS),
            "changed": self.changed,
            "step": self.step,
            **self.decisions,
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
        ours = f"{self._title!r}, {self.probability:.3f}"
        return f"Answer({ours}, zero-shot {zero_shot}, step {self.step})"

    @property
    def _title(self) -> str:
        return self.label or (f"({NONE_OF_THESE})" if self.none_of_these else "(unsure)")

    def _repr_html_(self) -> str:
        """The image beside bars for the most probable classes, adapted and zero-shot."""
        names, probs = self.prediction.class_names, dict(self.top(len(self.zero_shot_probs)))
        zero_shot = dict(zip(names, self.zero_shot_probs.tolist(), strict=True))
        shown = dict.fromkeys([*list(probs)[:_SHOWN], self.zero_shot_label])
        rows = "".join(_cells(name, probs[name], zero_shot[name]) for name in shown)
        facts = f"image {self.sample_id}, step {self.step}" + ", changed" * self.changed
        said = [f"{facts}, outside {self.outside:.2f}"]
        if missing := self.prediction.decision.missing_labels:
            said.append(f"sets need 20 corrected images: correct {missing} more")
        elif self.class_set:
            said.append(f"one of {', '.join(self.class_set)}")
        image = ""
        if self.pixels is not None:
            jpeg = io.BytesIO()
            Image.fromarray(self.pixels).save(jpeg, "JPEG", quality=90)
            source = f"data:image/jpeg;base64,{base64.b64encode(jpeg.getvalue()).decode()}"
            image = f'<img src="{source}" alt="" style="width:96px;height:96px;border-radius:4px">'
        return (
            '<div style="display:flex;gap:1em;align-items:flex-start;line-height:1.5">'
            f"{image}<div><div><b>{escape(self._title)}</b></div>"
            + "".join(f'<div style="opacity:.75">{escape(line)}</div>' for line in said)
            + f'<div style="{_ROW}">{rows}</div></div></div>'
        )


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


# A notebook shows plain HTML with inline styles, in its own colours; all text is escaped.
_SHOWN = 5  # classes, the most probable ones
_ROW = (
    "display:grid;grid-template-columns:fit-content(18em) 9em 4em auto;gap:0 .8em"
    ";align-items:center;white-space:nowrap"
)
_BAR = "height:.5em;margin:1px 0;background:currentColor"
_NAME = "overflow:hidden;text-overflow:ellipsis"


def _cells(name: str, adapted: float, zero_shot: float) -> str:
    """A class: its name, a bar for each probability, zero-shot fainter, and both numbers."""
    bars = "".join(
        f'<div style="{_BAR};width:{max(each, 0.003):.1%};opacity:{opacity}"></div>'
        for each, opacity in ((adapted, 1), (zero_shot, 0.35))
    )
    return (
        f'<div style="{_NAME}" title="{escape(name)}">{escape(name)}</div><div>{bars}</div>'
        f'<div style="text-align:right">{adapted:.1%}</div>'
        f'<div style="opacity:.6">zero-shot {zero_shot:.1%}</div>'
    )
