"""A stream of image files through a classifier, one line each, resumable at any moment.

The features of an image are kept in a journal, then its line is written, and from time to time
the lines are synced, the state is saved and the journal cleared, in this order. So after any stop
the answers are never behind the state, and the journal has what the state does not know yet.

For a second pass the journal keeps all features. It answers every image with what all of them
taught, needs neither the images nor the encoder and changes no file of the first, so that it may be
stopped and begun again at any moment: the same answers come out, and lines that are there stay.
"""

from __future__ import annotations

import os
import struct
import zlib
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
from crg.predict.answers import CORRECTED, AnswerFile, Line, no_room, place_of
from crg.predict.corrections import learn
from crg.threads import HeldSignals, one_blas_thread
from crg.types import InputError, Task

_HEAD = struct.Struct("<qIII")  # step, views, width, checksum
_MOST = 1 << 30  # bytes in one record; a larger one is damage
_CLASSES = ("image", "other")  # a store has classes; these take part in no answer


class Journal:
    """The features of images that were answered after the state was saved last.

    It brings the state up to the answers without the images, which may have been moved away since.
    A record has its step, its shape, a checksum and the features; one that a crash cut off is left
    out. With ``keep_all`` the features of the whole stream are there, for a second pass.
    """

    def __init__(self, path: Path, keep_all: bool = False) -> None:
        self.path, self.keep_all = path, keep_all

    def add(self, step: int, views: Vectors) -> None:
        """One image more, with its views (V, D) as they were given to the adapter."""
        content = np.ascontiguousarray(views, dtype="<f4").tobytes()
        check = zlib.crc32(content, zlib.crc32(_HEAD.pack(step, *views.shape, 0)))
        try:
            with self.path.open("ab") as file:
                file.write(_HEAD.pack(step, *views.shape, check) + content)
        except OSError as error:
            raise no_room(self.path, error) from None

    def cut_after(self, step: int) -> None:
        """Leave out what a crash cut off, and what belongs to later steps than ``step``."""
        ends = [end for found, _, end in self if found <= step]
        if self.path.exists():
            os.truncate(self.path, max(ends, default=0))

    def __iter__(self) -> Iterator[tuple[int, Vectors, int]]:
        """Step and views (V, D) of every whole record, and where it ends."""
        if not self.path.exists():
            return
        with self.path.open("rb") as file:
            while len(head := file.read(_HEAD.size)) == _HEAD.size:
                step, n_views, width, check = _HEAD.unpack(head)
                content = file.read(min(4 * n_views * width, _MOST))
                seed = zlib.crc32(_HEAD.pack(step, n_views, width, 0))
                if check != zlib.crc32(content, seed):
                    return
                views = np.frombuffer(content, "<f4").reshape(n_views, width)
                yield step, views.astype(np.float32), file.tell()


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
        how: dict[str, Any] = {"skip_unreadable": True, "on_progress": on_progress}
        try:
            encode(images, alone, classifier.recipe, folder, **how)
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
    """Where images go: a classifier, a file of answers, perhaps files to continue with."""

    classifier: Classifier
    output: AnswerFile
    states: Sequence[Path] = ()  # files that the state is saved to
    journal: Journal | None = None
    save_every: int = 100  # images
    strict: bool = False  # stop at an image that cannot be read
    workers: int = 1
    corrections: Mapping[str, str] = field(default_factory=dict)  # label by path
    knows_corrections: bool = False  # whether the state has learnt them
    started_at: int | None = None  # images that were learnt before the first one of the answers
    kept: Callable[[Iterable[str | Path]], Iterator[Encoded]] | None = None  # instead of encoding
    _last: int = field(default=0, init=False)  # step of the last line

    def run(self, paths: Iterable[Path | None], live: bool = False) -> Iterator[Any]:
        """Decide every image that has no answer yet; yields after each.

        One that could not be read before is tried again. With ``live`` each image is decided
        before the next path is asked for; None among the paths says that none is waiting, which
        is a good time to save. A signal never cuts a line in two. The state is saved whatever
        ends the stream. Corrected images come first.
        """
        if self.corrections and not self.knows_corrections:
            learn(self.classifier, self.corrections, self.workers)
        first = self.classifier.adapter.n_steps
        self._recover()
        if self.corrections and not self.knows_corrections:
            self._save()
        for path, label in self.corrections.items():
            self.output.correct(path, label, first)
        try:
            for name, features in self._encoded(paths, live):
                if name is None:
                    self._save()
                    continue
                self._decide(name, features)
                if self.output.counts["answered"] % self.save_every == 0:
                    self._save()
                yield name
        finally:
            self._save()

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
        if self.journal is not None:
            self.journal.cut_after(self._last)
        for step, views, _ in self.journal or ():
            if step == adapter.n_steps + 1 and step in lines:
                self.classifier.answer(views, lines[step]["path"])
        missing = [lines[step] for step in sorted(lines) if step > adapter.n_steps]
        files, names = map(place_of, missing), [line["path"] for line in missing]
        encoded = self.classifier.encode_many(files, names, self.workers)
        for name, _, features in encoded if self.kept is None else self.kept(names):
            if isinstance(features, InputError):
                raise InputError(
                    f"{shown(name)} was readable before the interruption and is not now "
                    f"({features}): put it back or start over."
                )
            answer = self.classifier.answer(features, name)
            if self.journal is not None:
                self.journal.add(answer.step, features)

    def _save(self) -> None:
        """Answers first, then the state that knows them and nothing beyond them."""
        if not self.states or self.classifier.adapter.n_steps != self._last:
            return  # a step whose line could not be written is done again
        with HeldSignals():
            self.output.sync()
            for state in self.states:
                self.classifier.save(state)
            if self.journal is not None and not self.journal.keep_all:
                self.journal.path.unlink(missing_ok=True)

    def _encoded(
        self, paths: Iterable[Path | None], live: bool
    ) -> Iterator[tuple[str | None, Any]]:
        """The name and the features, or the error, of each image that has no answer yet."""
        new = (path for path in paths if path is None or self.output.is_new(path))
        if not live:
            files = (path for path in new if path is not None)
            encoded = self.classifier.encode_many(files, workers=self.workers)
            encoded = encoded if self.kept is None else self.kept(files)
            yield from ((name, features) for name, _, features in encoded)
            return
        for path in new:
            name = None if path is None else str(path)
            try:
                yield name, None if name is None else self.classifier.encode(path, name)
            except InputError as error:
                yield name, error

    def _decide(self, name: str, features: Vectors | InputError) -> None:
        """Answer one image and write its line."""
        if isinstance(features, InputError):
            if self.strict:
                raise features
            self.output.unreadable(name, str(features))
            return
        answer = self.classifier.answer(features, name)
        with HeldSignals():
            if self.journal is not None:
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
    paths = dict.fromkeys(line["path"] for line in answered(first))
    views: Iterator[Vectors] = iter(())
    if any(map(output.is_new, paths)):
        with one_blas_thread():
            classifier.adapter.finish(zip(paths, _stored(first, features), strict=True))
        if corrected:
            learn(classifier, {path: line["label"] for path, line in corrected.items()}, workers)
        views = _stored(first, features)
    for line in first:
        if "error" in line and line["path"] not in paths:
            output.unreadable(line["path"], line["error"])
        elif "step" in line and not line.get(CORRECTED):
            seen = next(views, None)
            if seen is not None and output.is_new(line["path"]):
                with one_blas_thread():
                    prediction = classifier.adapter.answer(seen, line["path"])
                    answer = answer_for(classifier.task, prediction, seen, line["step"])
                with HeldSignals():
                    output.answer(line["path"], answer)
                yield line
    for path, line in corrected.items():
        output.correct(path, line["label"], line["step"])


def answered(lines: Iterable[Line]) -> Iterator[Line]:
    """The lines of images that were answered by the model, in the order of their steps."""
    return (line for line in lines if "step" in line and not line.get(CORRECTED))


def _stored(first: Iterable[Line], features: Journal) -> Iterator[Vectors]:
    """The views (V, D) of each image that the first pass answered."""
    records = iter(features)
    for line in answered(first):
        step, views, _ = next(records, (None, None, 0))
        if views is None or step != line["step"]:
            raise InputError(
                f"{features.path} lacks features of the first pass: start over with --overwrite."
            )
        yield views
