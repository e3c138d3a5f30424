"""Zero-shot classification that is called as Hugging Face's pipeline is, and adapts."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, TypeAlias

from crg.classifier import Classifier
from crg.encoders import Encoder
from crg.features.files import load_with_classes
from crg.prompts import check_names
from crg.types import InputError, Prediction

TASK = "zero-shot-image-classification"
TEMPLATE = "This is a photo of {}."  # Hugging Face's default
Scores: TypeAlias = list[dict[str, Any]]  # {"score", "label"} of every class, the best first


def pipeline(
    task: str = TASK, model: str | Encoder = "mini", *, adapt: bool = True, **settings: Any
) -> ZeroShotPipeline:
    """A pipeline as that of transformers, which learns from the images of every call.

    ``task`` is "zero-shot-image-classification". ``model`` is a name as ``crg encoders`` lists
    them, or of Hugging Face, such as "openai/clip-vit-base-patch32". With ``adapt=False`` nothing
    is learnt, and the scores are the model's own. ``settings`` are those of ``Classifier``.

    >>> from PIL import Image
    >>> pipe = pipeline("zero-shot-image-classification", model="mini")
    >>> red = Image.new("RGB", (80, 60), "red")
    >>> [score["label"] for score in pipe(red, candidate_labels=["blue square", "red square"])]
    ['red square', 'blue square']
    """
    if task != TASK:
        raise InputError(f"There is no pipeline {task!r}: use {TASK!r}.")
    if isinstance(model, str) and "/" in model and ":" not in model:
        model = f"hf:{model}"
    given = {name: settings.pop(name, None) for name in ("text_features", "device", "precision")}
    return ZeroShotPipeline(load_with_classes(model, **given), adapt, settings)


class ZeroShotPipeline:
    """Images and candidate labels in, scores out; made by ``crg.pipeline``.

    What was learnt stays from call to call, also where labels are added or removed. Another
    ``hypothesis_template``, or labels of which none was there before, start over. Threads may
    share a pipeline: calls take turns.
    """

    def __init__(self, encoder: Encoder, adapt: bool, settings: dict[str, Any]) -> None:
        self.encoder, self.adapt, self.settings = encoder, adapt, settings
        self.classifier: Classifier | None = None  # the one that adapts, to correct and save it
        self._template = ""
        self._lock = threading.Lock()

    def __call__(
        self,
        image: Any,
        candidate_labels: Sequence[str],
        *,
        hypothesis_template: str = TEMPLATE,
        adapt: bool | None = None,
    ) -> Any:
        """The ``Scores`` of one image, or a list of these for a list of images.

        An image is a path, a Pillow image, the bytes of a file or an array. If one cannot be read,
        the call learns from none. ``adapt`` overrides that of the pipeline for this call.
        """
        check_names(candidate_labels)
        images = image if isinstance(image, (list, tuple)) else [image]
        adapts = self.adapt if adapt is None else adapt
        with self._lock:
            classifier = self._classifier(candidate_labels, hypothesis_template, adapts)
            readable = []
            for name, _, features in classifier.encode_many(images):
                if isinstance(features, InputError):
                    raise features
                readable.append((features, name))
            classifier.set_classes(candidate_labels)
            if adapts:
                self.classifier, self._template = classifier, hypothesis_template
            answers = [classifier.answer(*each) for each in readable]
        scores = [scores_of(each.prediction, candidate_labels) for each in answers]
        return scores if images is image else scores[0]

    def _classifier(self, labels: Sequence[str], template: str, adapts: bool) -> Classifier:
        """That of the last call, or a new one where it learns nothing or could keep nothing."""
        now = self.classifier if adapts and template == self._template else None
        if now is not None and not set(labels).isdisjoint(now.task.class_names):
            return now
        settings = self.settings if adapts else {"method": "zero_shot"}
        return Classifier(self.encoder, labels, templates=[template], **settings)


def scores_of(prediction: Prediction, labels: Sequence[str]) -> Scores:
    """A prediction in Hugging Face's form; labels with the same score stay in their order."""
    probs = dict(zip(prediction.class_names, prediction.probs.tolist(), strict=True))
    best = sorted(labels, key=lambda label: -probs[label])
    return [{"score": probs[label], "label": label} for label in best]
