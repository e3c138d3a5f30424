"""Classifier: images and class names in, predictions out, adapting as it goes."""

from __future__ import annotations

import hashlib
import itertools
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from crg.adapter import Adapter, create, load
from crg.encoders.base import Encoder, Vectors
from crg.features.class_features import load_with_classes, read_class_features
from crg.features.files import read_features
from crg.features.joining import few_for
from crg.images.reading import read_image
from crg.images.views import Augment, Recipe, iter_views, make_views
from crg.methods.options import build_config
from crg.methods.registry import DEFAULT, get_method
from crg.needs import FEW, TEXT_ENCODER
from crg.ops import softmax
from crg.presets import with_preset
from crg.prompts import PHOTO, Mode, make_task, read_descriptions
from crg.threads import one_blas_thread
from crg.types import InputError, Prediction, Task

_SAME_TEXT = 1e-3  # how far text features of the same words and weights may lie apart
_VIEWS_AT_ONCE = 64  # views that the encoder gets in one call, whole images


@dataclass(frozen=True)
class Answer:
    """What an image shows, with and without adaptation."""

    label: str
    probability: float
    zero_shot_label: str
    zero_shot_probability: float
    step: int  # how many images had been seen by then, this one included
    prediction: Prediction
    features: Vectors  # (V, D), of the image and its views

    @property
    def changed(self) -> bool:
        """Whether adaptation chose another class than zero-shot."""
        return self.label != self.zero_shot_label


class Classifier:
    """A model, class names and a method that adapts.

    >>> from PIL import Image
    >>> shapes = Classifier("mini", ["red circle", "blue square"])
    >>> shapes.predict(Image.new("RGB", (80, 60), "red")).step
    1
    """

    def __init__(
        self,
        model: str | Encoder = "mini",
        classes: Sequence[str] | None = None,
        *,
        method: str | None = None,
        options: Mapping[str, Any] | None = None,
        templates: Sequence[str] = (PHOTO,),
        descriptions: str | os.PathLike[str] | None = None,
        prompts: Mode = "template",
        views: int = 1,
        augment: Augment = "crops",
        smallest_crop: float = Recipe.smallest,
        seed: int = 0,
        device: str | None = None,
        precision: str | None = None,
        state: str | os.PathLike[str] | None = None,
        few: str | os.PathLike[str] | None = None,
        text_features: str | os.PathLike[str] | None = None,
        on_note: Callable[[str], None] | None = None,
    ) -> None:
        """Load the model and encode the class names.

        ``state`` names a file that ``save`` wrote; classes, method and options are then
        those of the file. ``few`` names a feature file or store of labelled images, for
        methods that need some. ``text_features`` names a file with ``class_names`` and
        ``text_features``, for a model without a text encoder; its names are the classes unless
        others are given. ``on_note`` gets a sentence for each thing that is worth a remark.
        """
        saved = None if state is None else load(state)
        if classes is None and saved is None and text_features is not None:
            classes = read_class_features(text_features).class_names
        names = _checked_names(classes, saved)
        self.recipe = Recipe(views=views, augment=augment, seed=seed, smallest=smallest_crop)
        self.encoder: Encoder = load_with_classes(
            model, text_features, device=device, precision=precision
        )
        sentences = None if descriptions is None else read_descriptions(descriptions)
        task = make_task(self.encoder, names, templates, sentences, prompts, on_note=on_note)
        given = dict(options or {})
        if saved is not None:
            _check_fits(saved, task, method, given, str(state))
        self.adapter: Adapter = saved or self._adapter(task, method or DEFAULT, given, few)

    @property
    def task(self) -> Task:
        """Class names and text features."""
        return self.adapter.task

    @property
    def settings(self) -> dict[str, Any]:
        """All that decides the answers to a stream, as plain values."""
        text = np.ascontiguousarray(self.task.text_features)
        return {
            "model": self.encoder.name,
            "weights": self.encoder.fingerprint,
            "classes": list(self.task.class_names),
            "prompts": hashlib.sha256(text.tobytes()).hexdigest(),
            "method": self.adapter.name,
            "options": asdict(self.adapter.config),
            **asdict(self.recipe),
        }

    def predict(self, image: Any, sample_id: str | None = None) -> Answer:
        """Adapt to one image and say what it shows.

        ``image`` is a path, a Pillow image, the bytes of a file or an array (H, W, 3).
        ``sample_id`` seeds its random views: the path, or a running number if none is given.
        """
        name = _name_of(image, self.adapter.n_steps) if sample_id is None else sample_id
        return self.answer(self.encode(image, name), name)

    def encode(self, image: Any, sample_id: str) -> Vectors:
        """The features of an image and its random views, (V, D); nothing is learnt."""
        views = make_views(read_image(image), self.encoder.preprocessing, self.recipe, sample_id)
        return self.encoder.encode_images(views)

    def predict_many(
        self, images: Iterable[Any], sample_ids: Iterable[str] | None = None, workers: int = 1
    ) -> Iterator[Answer | InputError]:
        """What ``predict`` gives for each, encoded in batches with views made by ``workers``.

        An image that cannot be read yields its error, and the stream goes on.
        """
        for name, features in self.encode_many(images, sample_ids, workers):
            yield features if isinstance(features, InputError) else self.answer(features, name)

    def encode_many(
        self, images: Iterable[Any], sample_ids: Iterable[str] | None = None, workers: int = 1
    ) -> Iterator[tuple[str, Vectors | InputError]]:
        """The id of each image and what ``encode`` gives for it, in batches; or its error.

        Products round by the place of an image in its batch. So that place follows from the
        number of images before it: a stream that continues gets the very same features.
        """
        known, again = itertools.tee(images)
        numbers = itertools.count(self.adapter.n_steps)
        names = map(_name_of, again, numbers) if sample_ids is None else sample_ids
        ids, kept = itertools.tee(names)
        made = iter_views(known, ids, self.encoder.preprocessing, self.recipe, workers)
        per_batch = max(1, _VIEWS_AT_ONCE // self.recipe.views)
        first, batch = self.adapter.n_steps % per_batch, []  # type: int, list[tuple[str, Any]]
        n_readable = 0
        for pair in zip(kept, made, strict=True):
            batch.append(pair)
            n_readable += not isinstance(pair[1], InputError)
            if first + n_readable == per_batch:
                yield from self._encoded(batch, first)
                first, batch, n_readable = 0, [], 0
        yield from self._encoded(batch, first)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write what was learnt to one file; ``Classifier(..., state=path)`` continues with it."""
        self.adapter.save(path)

    def _adapter(
        self, task: Task, method: str, options: dict[str, Any], few: str | os.PathLike[str] | None
    ) -> Adapter:
        """A new adapter, with what the method needs as far as it is available."""
        if few is not None:
            task = task.with_resources({FEW: few_for(task, read_features(few))})
        if TEXT_ENCODER in get_method(method).needs and hasattr(self.encoder, "promptable"):
            task = task.with_resources({TEXT_ENCODER: self.encoder.promptable()})
        return create(method, task, **options)

    def _encoded(
        self, batch: Sequence[tuple[str, Any]], first: int
    ) -> Iterator[tuple[str, Vectors | InputError]]:
        """A batch whose images stand from place ``first`` on; nothing is in the places before."""
        readable = [views for _, views in batch if not isinstance(views, InputError)]
        features = iter(())  # type: Iterator[Vectors]
        if readable:
            blank = np.zeros_like(readable[0])
            rows = self.encoder.encode_images(np.concatenate([*[blank] * first, *readable]))
            features = iter(rows.reshape(first + len(readable), -1, rows.shape[-1])[first:])
        for name, views in batch:
            yield name, views if isinstance(views, InputError) else next(features)

    def answer(self, features: Vectors, sample_id: str) -> Answer:
        """Adapt to one image whose features (V, D) are known, and say what it shows."""
        task = self.task
        zero_shot = softmax(task.logit_scale * (task.text_features @ features[0]))
        first = int(np.argmax(zero_shot))
        with one_blas_thread():
            prediction = self.adapter.step(features, sample_id)
        return Answer(
            label=prediction.class_name,
            probability=float(prediction.probs[prediction.label]),
            zero_shot_label=task.class_names[first],
            zero_shot_probability=float(zero_shot[first]),
            step=self.adapter.n_steps,
            prediction=prediction,
            features=features,
        )


def _name_of(image: Any, number: int) -> str:
    return str(image) if isinstance(image, (str, Path)) else str(number)


def _checked_names(classes: Sequence[str] | None, saved: Adapter | None) -> tuple[str, ...]:
    if classes is None:
        if saved is None:
            raise InputError("There are no class names: give at least two.")
        return tuple(saved.task.class_names)
    if isinstance(classes, str):
        raise InputError(f"The class names are one text, {classes!r}: give a list of names.")
    for name in classes:
        if not isinstance(name, str):
            raise InputError(f"The class name {name!r} is no text: give every name as text.")
    for name, count in Counter(classes).items():
        if count > 1:
            raise InputError(
                f"The class name {name!r} occurs more than once: make the names distinct."
            )
    return tuple(classes)


def _check_fits(
    saved: Adapter, task: Task, method: str | None, options: dict[str, Any], state: str
) -> None:
    """Refuse a state that was made by another method, for other classes or another model."""
    if method not in (None, saved.name):
        raise InputError(
            f"{state} was saved by method {saved.name!r}, not {method!r}: "
            "leave the method out or start over."
        )
    asked = build_config(saved.name, type(saved.config), options)
    for name in with_preset(saved.name, options):
        if getattr(saved.config, name) != getattr(asked, name):
            raise InputError(
                f"{state} was saved with {name}={getattr(saved.config, name)}: "
                "leave the option out or start over."
            )
    only_in_one = sorted(set(saved.task.class_names) ^ set(task.class_names))
    if only_in_one:
        raise InputError(
            f"{state} was saved for {saved.task.n_classes} other classes, from "
            f"{saved.task.class_names[0]!r} to {saved.task.class_names[-1]!r}: "
            "leave the classes out or start over."
        )
    rows = [task.class_names.index(name) for name in saved.task.class_names]
    ours, theirs = task.text_features[rows, :], np.asarray(saved.task.text_features)
    if ours.shape != theirs.shape or np.abs(ours - theirs).max() > _SAME_TEXT:
        raise InputError(
            f"{state} was saved with another model or other prompts: "
            "name the same ones or start over."
        )
