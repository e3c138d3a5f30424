"""Classifier: images and class names in, predictions out, adapting as it goes.

Threads may share one: whatever changes it holds the adapter's lock, so calls take turns.
"""

from __future__ import annotations

import hashlib
import itertools
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Self, TypeAlias

import numpy as np
from PIL.Image import Image

from crg import state_file
from crg.adapter import Adapter, create, restored
from crg.answer import Answer, answer_for, small_copy
from crg.encoders.base import Encoder, Vectors
from crg.features.files import load_with_classes, read_class_features, read_features
from crg.features.joining import few_for
from crg.images.views import Augment, Recipe, iter_views, make_views
from crg.methods.registry import DEFAULT, get_method, typed_options
from crg.parts.decisions import NoneOfThese
from crg.prompts import check_names, encode_classes, make_task, read_descriptions
from crg.resources import FEW, TEXT_ENCODER
from crg.state_file import Saved
from crg.threads import one_blas_thread
from crg.types import InputError, Task, listed

__all__ = ["Answer", "Classifier"]

AnyPath: TypeAlias = str | os.PathLike[str]
Encoded: TypeAlias = tuple[str, Any, Vectors | InputError]  # id, views, features; twice its error
_VIEWS_AT_ONCE = 64  # views that the encoder gets in one call, whole images


class Classifier:
    """A model, class names and a method that adapts.

    >>> from PIL import Image
    >>> shapes = Classifier("mini", ["red circle", "blue square"])
    >>> shapes.predict(Image.new("RGB", (80, 60), "red")).step
    1
    """

    def __init__(
        self,
        model: str | Encoder | None = None,
        classes: Sequence[str] | None = None,
        *,
        method: str | None = None,
        options: Mapping[str, Any] | None = None,
        templates: Sequence[str] = (),
        descriptions: Mapping[str, Sequence[str]] | AnyPath | None = None,
        views: int = 1,
        augment: Augment = "crops",
        smallest_crop: float = Recipe.smallest,
        seed: int = 0,
        device: str | None = None,
        precision: str | None = None,
        state: AnyPath | None = None,
        few: AnyPath | None = None,
        text_features: AnyPath | None = None,
        none_of_these: NoneOfThese = None,
        sets: float | None = None,
        on_note: Callable[[str], None] | None = None,
    ) -> None:
        """Load the model and encode the class names.

        ``state`` names a file that ``save`` wrote; model, classes, method and options are then
        those of the file unless they are given. With other classes than the file's, classes are
        added and removed. ``few`` names a feature file or store of labelled images, for methods
        that need some. ``text_features`` names a file with ``class_names`` and ``text_features``,
        for a model without a text encoder; its names are the classes unless others are given.
        Images whose ``outside`` is above ``none_of_these`` get no label and are not learnt; "auto"
        takes the threshold from the stream. ``sets``, such as 0.9, adds a set of classes that holds
        the true one so often, once 20 images are corrected. ``on_note`` gets a sentence for each
        thing that is worth a remark.
        """
        saved = None if state is None else state_file.read(state)
        if classes is None and saved is not None:
            classes = saved.task.class_names
        elif classes is None and text_features is not None:
            classes = read_class_features(text_features).class_names
        names = _distinct(() if classes is None else classes)
        self.recipe = Recipe(views=views, augment=augment, seed=seed, smallest=smallest_crop)
        named = state_file.model_of(saved, str(state)) if model is None else model
        self.encoder: Encoder = load_with_classes(
            named, text_features, device=device, precision=precision
        )
        if isinstance(descriptions, (str, os.PathLike)):
            descriptions = read_descriptions(descriptions)
        self._prompts: dict[str, Any] = {
            "templates": list(templates) if not isinstance(templates, str) else templates,
            "descriptions": descriptions and dict(descriptions),
        }
        self._has_corrections = False
        self._state = state  # the file to save to at the end of a ``with`` block
        task = make_task(self.encoder, names, **self._prompts, on_note=on_note)
        self.adapter = _adapter(self.encoder, task, saved, str(state), method, options or {}, few)
        self._follow(task, on_note)
        self.adapter.decide(none_of_these, sets)
        self.adapter.about = self._about()

    @classmethod
    def load(
        cls,
        path: AnyPath,
        model: str | Encoder | None = None,
        *,
        device: str | None = None,
        precision: str | None = None,
        text_features: AnyPath | None = None,
        on_note: Callable[[str], None] | None = None,
    ) -> Self:
        """What ``save`` wrote, with the same model, prompts and views.

        The weights are not in the file: the model is loaded by its name. One that was read from
        files of yours is given again as ``model``, and so are ``text_features``.
        """
        about = state_file.checked_about(state_file.read(path), str(path))
        about["model"] = model  # None: the constructor decides whether it may be loaded
        about |= {"device": device, "precision": precision, "text_features": text_features}
        return cls(state=path, on_note=on_note, **about)

    def save(self, path: AnyPath) -> None:
        """Write what was learnt to one file, at once or not at all; ``load`` continues with it."""
        self.adapter.save(path)
        self._state = path

    def __enter__(self) -> Self:
        """The classifier; when the block ends without an exception, what was learnt is saved.

        It goes to the file that the classifier was loaded from or last saved to; if there is
        none, nothing is saved. There is nothing else to close.
        """
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None and self._state is not None:
            self.save(self._state)

    def __repr__(self) -> str:
        facts = f"{self.task.n_classes} classes, {self.adapter.n_steps} images seen"
        return f"Classifier({self.encoder.name!r}, method={self.adapter.name!r}, {facts})"

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
            "none_of_these": self.adapter.decisions.none_of_these,
            "sets": self.adapter.decisions.sets,
        }

    def predict(self, image: Any, sample_id: str | None = None) -> Answer:
        """Adapt to one image and say what it shows.

        ``image`` is a path, a Pillow image, the bytes of a file or an array (H, W, 3).
        ``sample_id`` seeds its random views: the path, or else its number, counted from 1.
        """
        with self.adapter.lock:
            name = _name_of(image, self.adapter.n_steps + 1) if sample_id is None else sample_id
            views = make_views(image, self.encoder.preprocessing, self.recipe, name)
            answer = self.answer(self.encoder.encode_images(views), name)
        return replace(answer, pixels=small_copy(views))

    def correct(self, image: Any, label: str, sample_id: str | None = None) -> None:
        """Learn that an image shows ``label``; the earlier label is undone.

        ``image`` is one that ``predict`` would take. The method knows it again by its
        ``sample_id``: the path, if none is given.
        """
        if sample_id is None and isinstance(image, (str, Path)):
            sample_id = str(image)
        features = self.encode(image, "corrected" if sample_id is None else sample_id)
        with self.adapter.lock, one_blas_thread():
            self.adapter.correct(features, label, sample_id)
            self._has_corrections = True

    def add_class(self, name: str) -> None:
        """Add a class, named by the same prompts as the others."""
        with self.adapter.lock:
            _distinct([*self.task.class_names, name])
            [row] = encode_classes(self.encoder, [name], **self._prompts)
            self.adapter.add_class(name, row)

    def remove_class(self, name: str) -> None:
        """Remove a class; what was learnt about the others stays."""
        self.adapter.remove_class(name)

    def set_classes(self, names: Sequence[str]) -> None:
        """Add and remove classes until they are ``names``; what was learnt about others stays."""
        with self.adapter.lock:
            if set(_distinct(names)) != set(self.task.class_names):
                self._follow(make_task(self.encoder, names, **self._prompts), None)

    def encode(self, image: Any, sample_id: str) -> Vectors:
        """The features of an image and its random views, (V, D); nothing is learnt."""
        views = make_views(image, self.encoder.preprocessing, self.recipe, sample_id)
        with self.adapter.lock:
            return self.encoder.encode_images(views)

    def predict_many(
        self,
        images: Iterable[Any],
        sample_ids: Iterable[str] | None = None,
        workers: int = 1,
        passes: int = 1,
    ) -> Iterator[Answer | InputError]:
        """What ``predict`` gives for each, encoded in batches with views made by ``workers``.

        An image that cannot be read yields its error, and the stream continues. With ``passes=2``
        the classifier learns all images before it answers the first one, as ``crg predict`` does
        with a folder; until then it keeps their features in memory.
        """
        if isinstance(images, (str, bytes, Path, Image)):
            raise InputError("The images are a single one: give a list of images, or use predict.")
        if passes not in (1, 2):
            raise InputError(f"passes is {passes!r}: read the images once or twice, 1 or 2.")
        if passes == 2 and (self.adapter.n_steps or self._has_corrections):
            raise InputError(
                "Two passes learn from the start, and this classifier has learnt already: "
                "make a new one, or use passes=1."
            )
        answers = self._predict_once(self.encode_many(images, sample_ids, workers))
        yield from answers if passes == 1 else self._predict_again(list(answers))

    def _predict_once(self, encoded: Iterable[Encoded]) -> Iterator[Answer | InputError]:
        for name, views, features in encoded:
            if isinstance(features, InputError):
                yield features
            else:
                yield replace(self.answer(features, name), pixels=small_copy(views))

    def _predict_again(self, first: Sequence[Answer | InputError]) -> Iterator[Answer | InputError]:
        """Answer all images of a first pass with what they taught together."""
        learnt = [(each.sample_id, each.features) for each in first if isinstance(each, Answer)]
        predictions = self.adapter.second_pass(learnt)
        for each in first:
            if isinstance(each, Answer):
                with self.adapter.lock, one_blas_thread():
                    each = replace(each, prediction=next(predictions))
            yield each

    def encode_many(
        self, images: Iterable[Any], sample_ids: Iterable[str] | None = None, workers: int = 1
    ) -> Iterator[Encoded]:
        """The id and views of each image and what ``encode`` gives for it, or twice its error."""
        known, again = itertools.tee(images)
        numbers = itertools.count(self.adapter.n_steps + 1)
        names = map(_name_of, again, numbers) if sample_ids is None else sample_ids
        ids, kept = itertools.tee(names)
        made = iter_views(known, ids, self.encoder.preprocessing, self.recipe, workers)
        named = zip(kept, made, strict=True)
        while batch := list(itertools.islice(named, max(1, _VIEWS_AT_ONCE // self.recipe.views))):
            yield from self._encoded(batch)

    def _follow(self, task: Task, on_note: Callable[[str], None] | None) -> None:
        """Add and remove classes until they are those of ``task``."""
        before, now = self.task.class_names, task.class_names
        added = [name for name in now if name not in before]
        removed = [name for name in before if name not in now]
        for name in added:
            self.adapter.add_class(name, task.text_features[task.index_of(name)])
        for name in removed:
            self.adapter.remove_class(name)
        changes = [f"{what} {listed(names)}" for what, names in
                   (("added", added), ("removed", removed)) if names]  # fmt: skip
        if changes and on_note is not None:
            on_note(f"Since the state was saved, classes have changed: {'; '.join(changes)}.")

    def _about(self) -> dict[str, Any]:
        """The arguments of the constructor that are saved with the state."""
        prompts, recipe, asked = self._prompts, self.recipe, self.adapter.decisions
        return {"model": self.encoder.name, "templates": prompts["templates"],
                "descriptions": prompts["descriptions"],
                "views": recipe.views, "augment": recipe.augment,
                "smallest_crop": recipe.smallest, "seed": recipe.seed,
                "none_of_these": asked.none_of_these, "sets": asked.sets}  # fmt: skip

    def _encoded(self, batch: Sequence[tuple[str, Any]]) -> Iterator[Encoded]:
        readable = [views for _, views in batch if not isinstance(views, InputError)]
        features = iter(())  # type: Iterator[Vectors]
        if readable:
            with self.adapter.lock:
                rows = self.encoder.encode_images(np.concatenate(readable))
            features = iter(rows.reshape(len(readable), -1, rows.shape[-1]))
        for name, views in batch:
            yield name, views, views if isinstance(views, InputError) else next(features)

    def answer(self, features: Vectors, sample_id: str) -> Answer:
        """Adapt to one image whose features (V, D) are known, and say what it shows."""
        with self.adapter.lock, one_blas_thread():
            prediction = self.adapter.step(features, sample_id)
            return answer_for(self.task, prediction, features, self.adapter.n_steps, sample_id)


def _name_of(image: Any, number: int) -> str:
    return str(image if isinstance(image, (str, Path)) else number)


def _distinct(classes: Sequence[str]) -> tuple[str, ...]:
    """The class names, each of which may occur once."""
    check_names(classes)
    for name, count in Counter(classes).items():
        if count > 1:
            raise InputError(f"The class name {name!r} occurs more than once: make names distinct.")
    return tuple(classes)


def _adapter(
    encoder: Encoder,
    task: Task,
    saved: Saved | None,
    state: str,
    method: str | None,
    options: Mapping[str, Any],
    few: AnyPath | None,
) -> Adapter:
    """A new adapter, or that of a state if method, options, model and prompts agree."""
    if saved is not None:
        state_file.check_method(saved, state, method)
        method = saved.method
    kind = get_method(method or DEFAULT)
    resources: dict[str, Any] = {}
    if TEXT_ENCODER in kind.needs and hasattr(encoder, "promptable"):
        resources[TEXT_ENCODER] = encoder.promptable()
    if saved is None:
        if few is not None:
            resources[FEW] = few_for(task, read_features(few))
        return create(kind.name, task.with_resources(resources), **options)
    state_file.check_fits(saved, state, typed_options(kind.name, options), task)
    return restored(saved, resources)
