"""Answer: what a classifier says about one image, and how a notebook shows it."""

from __future__ import annotations

import io
from dataclasses import dataclass

import numpy as np
from PIL import Image

from crg import notebook
from crg.encoders.base import Vectors
from crg.images.preprocessing import Pixels
from crg.ops import softmax
from crg.types import Prediction, Task

_SIDE = 64  # pixels of the small copy that an answer keeps, at most


@dataclass(frozen=True, eq=False, repr=False)
class Answer:
    """What an image shows, with and without adaptation."""

    label: str
    probability: float
    zero_shot_label: str
    zero_shot_probability: float
    step: int  # how many images had been seen by then, this one included
    sample_id: str  # what ``Classifier.correct`` knows the image by
    prediction: Prediction
    zero_shot_probs: Vectors  # (K,)
    features: Vectors  # (V, D), of the image and its views
    pixels: Pixels | None = None  # (H, W, 3), a small copy of what the model saw

    @property
    def changed(self) -> bool:
        """Whether adaptation chose another class than zero-shot."""
        return self.label != self.zero_shot_label

    def top(self, count: int) -> list[tuple[str, float]]:
        """The ``count`` most probable classes with their probabilities, the best first."""
        probs, names = np.asarray(self.prediction.probs), self.prediction.class_names
        best = np.argsort(-probs, kind="stable")[:count]
        return [(names[k], float(probs[k])) for k in best]

    def __repr__(self) -> str:
        zero_shot = f"{self.zero_shot_label!r} {self.zero_shot_probability:.3f}"
        ours = f"{self.label!r}, {self.probability:.3f}"
        return f"Answer({ours}, zero-shot {zero_shot}, step {self.step})"

    def _repr_html_(self) -> str:
        """What a notebook shows: the image, and bars of both kinds for the likeliest classes."""
        probs, zero_shot = self.prediction.probs.tolist(), self.zero_shot_probs.tolist()
        below = notebook.bars(self.prediction.class_names, probs, zero_shot)
        said = f"image {self.sample_id}, step {self.step}" + ", changed" * self.changed
        return notebook.card(self.label, [said], below, _jpeg(self.pixels))


def answer_for(
    task: Task, prediction: Prediction, features: Vectors, step: int, sample_id: str = ""
) -> Answer:
    """A prediction for an image with these unit features (V, D), beside zero-shot."""
    zero_shot = softmax(task.logit_scale * (task.text_features @ features[0]))
    first = int(np.argmax(zero_shot))
    return Answer(
        label=prediction.class_name,
        probability=float(prediction.probs[prediction.label]),
        zero_shot_label=task.class_names[first],
        zero_shot_probability=float(zero_shot[first]),
        step=step,
        sample_id=sample_id,
        prediction=prediction,
        zero_shot_probs=zero_shot,
        features=features,
    )


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
