"""A stream of image files through a classifier, one line each, resumable at any moment.

The features of an image are kept in a journal, then its line is written, and from time to time
the lines are synced, the state is saved and the journal cleared, in this order. So after any stop
the answers are never behind the state, and the journal has what the state does not know yet.

For a second pass the journal keeps all features. It answers every image with what all of them
taught, needs neither the images nor the encoder and changes no file of the first, so that it may be
stopped and begun again at any moment: the same answers come out, and lines that are there stay.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from crg.answer import answer_for
from crg.classifier import Classifier, Encoded
from crg.encoders.base import GivenText, Vectors
from crg.encoding import EncodingProgress, encode
from crg.features.files import read_features
from crg.features.store import HEADER, read_header
from crg.images.image_set import ImageSet
from crg.images.reading import shown
from crg.predict.answers import CORRECTED, AnswerFile, Line, place_of
from crg.predict.corrections import learn
from crg.predict.journal import Journal
from crg.threads import HeldSignals, one_blas_thread
from crg.types import InputError, Task

JOURNAL = "journal"  # features of the images that the saved state does not know
_CLASSES = ("image", "other")  # a store has classes; these take part in no answer


def kept_features(
    classifier: Classifier,
    paths: Sequence[Path],
    folder: Path,
    resume: bool,
    on_progress: Callable[[EncodingProgress], None],
) -> Callable[[Iterable[str | Path]], Iterator[Encoded]]:
    """Fill a store of ``crg encode``; what it returns gives features as ``encode_many`` does.

    The store knows the images, the model and the views, and nothing of classes: another method,
    list of names or threshold reads the same features. They are in half precision, always. With
    ``resume``, images may have been moved from the list if the store is finished.
    """
    encoder = getattr(classifier.encoder, "images", classifier.encoder)
    classes = Task(_CLASSES, np.eye(2, encoder.width, dtype=np.float32), 1.0)
    alone = GivenText(encoder, classes, str(folder))
    if resume and (folder / HEADER).exists() and read_header(folder).finished:
        asked, key = asdict(classifier.recipe), read_header(folder).key
        asked["weights"] = alone.fingerprint
        if any(key.get(name, value) != value for name, value in asked.items()):
            raise InputError(f"{folder} has other features: give another one with --features.")
    else:
        images = ImageSet("images", _CLASSES, (), tuple(map(str, paths)), tuple(paths))
        try:
            encode(images, alone, classifier.recipe, folder, on_progress=on_progress)
        except InputError as error:
            raise InputError(str(error).replace("--out", "--features")) from None
    features, errors = read_features(folder), read_header(folder).skipped
    rows = {str(name): row for row, name in enumerate(features.sample_ids)}

    def read(paths: Iterable[str | Path]) -> Iterator[Encoded]:
        for name in map(str, paths):
            lacking = f"{name} is not in {folder}: give another folder with --features."
            known = features.views(rows[name]) if name in rows else None
            yield name, None, InputError(errors.get(name, lacking)) if known is None else known

    return read


@dataclass
class ImageStream:
    """Where images go: a classifier, a file of answers, and files to continue with."""

    classifier: Classifier
    output: AnswerFile
    folder: Path  # that holds the state and a journal, to continue with
    save_state: Path | None = None  # where else the state is saved
    save_every: int = 100  # images
    workers: int = 1
    corrections: Mapping[str, str] = field(default_factory=dict)  # label by path
    learnt: bool = False  # whether the classifier has learnt them already
    started_at: int | None = None  # images that were learnt before the first one of the answers
    kept: Callable[[Iterable[str | Path]], Iterator[Encoded]] | None = None  # instead of encoding
    _last: int = field(default=0, init=False)  # step of the last line

    def __post_init__(self) -> None:
        self.journal = Journal(self.folder / JOURNAL)  # for a second pass it is another one

    def run(self, paths: Iterable[Path | None], live: bool = False) -> Iterator[Any]:
        """Decide every image that has no answer yet; yields after each.

        One that could not be read before is tried again. With ``live`` each image is decided
        before the next path is asked for; None among the paths says that none is waiting, which
        is a good time to save. A signal never cuts a line in two. The state is saved whatever
        ends the stream. Corrected images come first.
        """
        first, said = self.classifier.adapter.n_steps, self.corrections
        again = self.output.errors if self.learnt else said
        some = {path: said[path] for path in said if path in again}
        errors = learn(self.classifier, some, self.workers)
        self._recover()
        for path, error in errors.items():
            self.output.unreadable(path, error)
        if said:
            self._save()  # which makes sure that they are learnt once
        for path, label in said.items():
            if path not in errors:
                self.output.correct(path, label, first)
        new = (path for path in paths if str(path) not in errors)
        left = (path for path in new if path is None or self.output.is_new(path))
        try:
            for part in ([path] for path in left) if live else [left]:
                if part == [None]:
                    self._save()
                    continue
                for name, _, features in self._encoded(part):
                    self._decide(name, features)
                    if self.output.counts["answered"] % self.save_every == 0:
                        self._save()
                    yield name
        finally:
            self._save()

    def _encoded(self, images: Iterable[Any], names: Iterable[str] | None = None) -> Any:
        """The name, the views and the features, or the error, of each image."""
        if self.kept is not None:
            return self.kept(images if names is None else names)
        return self.classifier.encode_many(images, names, self.workers)

    def _recover(self) -> None:
        """Bring the state up to the answers, by the journal or else by the images themselves."""
        lines = {line["step"]: line for line in answered(self.output.before)}
        adapter, first = self.classifier.adapter, self.classifier.adapter.n_steps
        self._last = max(lines, default=first if self.started_at is None else self.started_at)
        if self._last < first:
            raise InputError(
                f"The state has seen {first} images but the answers end at {self._last}: "
                "give the state and the answers of the same stream."
            )
        self.journal.cut(sum(step <= self._last for step, *_ in self.journal))
        for step, views, _ in self.journal:
            if step == adapter.n_steps + 1 and step in lines:
                self.classifier.answer(views, lines[step]["path"])
        missing = [lines[step] for step in sorted(lines) if step > adapter.n_steps]
        names = [line["path"] for line in missing]
        for name, _, features in self._encoded(map(place_of, missing), names):
            if isinstance(features, InputError):
                raise InputError(
                    f"{shown(name)} was readable before the interruption and is not now "
                    f"({features}): put it back or start over."
                )
            self.journal.add(self.classifier.answer(features, name).step, features)

    def _save(self) -> None:
        """Answers first, then the state that knows them and nothing beyond them."""
        if self.classifier.adapter.n_steps != self._last:
            return  # a step whose line could not be written is done again
        with HeldSignals():
            self.output.sync()
            for state in filter(None, (self.folder / "state", self.save_state)):
                self.classifier.save(state)
            (self.folder / JOURNAL).unlink(missing_ok=True)

    def _decide(self, name: str, features: Vectors | InputError) -> None:
        """Answer one image and write its line."""
        if isinstance(features, InputError):
            self.output.unreadable(name, str(features))
            return
        answer = self.classifier.answer(features, name)
        with HeldSignals():
            self.journal.add(answer.step, answer.features)
            self.output.answer(name, answer)
            self._last = answer.step


def second_pass(
    classifier: Classifier,
    first: Sequence[Line],
    features: Journal,
    output: AnswerFile,
    workers: int = 1,
) -> Iterator[Any]:
    """Answer again what the lines ``first`` have answered; yields after each image.

    Images that have a line in ``output`` are left as they are. What people corrected is learnt
    again, as the images that were steps are, and written last: until then the files are there.
    """
    corrected = {line["path"]: line for line in first if line.get(CORRECTED)}
    steps = {line["step"]: line["path"] for line in answered(first)}
    paths = set(steps.values())
    if any(map(output.is_new, paths)):
        if list(steps) != [step for step, *_ in features]:
            raise InputError(
                f"{features.path} lacks features of the first pass: start over with --overwrite."
            )
        with one_blas_thread():
            classifier.adapter.finish((steps[step], views) for step, views, _ in features)
        said = {path: line["label"] for path, line in corrected.items()}
        for path, error in learn(classifier, said, workers).items():
            output.unreadable(path, error)
            del corrected[path]
    stored = iter(features)
    for line in first:
        if "error" in line and line["path"] not in paths | corrected.keys():
            output.unreadable(line["path"], line["error"])
        elif "step" in line and not line.get(CORRECTED):
            _, views, _ = next(stored, (0, np.empty(0, "f4"), 0))  # none is left if all is answered
            if output.is_new(line["path"]):
                with one_blas_thread():
                    prediction = classifier.adapter.answer(views, line["path"])
                    answer = answer_for(classifier.task, prediction, views, line["step"])
                with HeldSignals():
                    output.answer(line["path"], answer)
                yield line
    for path, line in corrected.items():
        output.correct(path, line["label"], line["step"])


def answered(lines: Iterable[Line]) -> Iterator[Line]:
    """The lines of images that were answered by the model, in the order of their steps."""
    return (line for line in lines if "step" in line and not line.get(CORRECTED))
