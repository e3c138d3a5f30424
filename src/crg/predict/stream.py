"""A stream of image files through a classifier, one line each, resumable at any moment.

The features of an image are kept in a journal, then its line is written, and from time to time
the lines are synced, the state is saved and the journal cleared, in this order. So after any stop
the answers are never behind the state, and the journal has what the state does not know yet.
"""

from __future__ import annotations

import contextlib
import os
import struct
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from crg.classifier import Answer, Classifier
from crg.encoders.base import Vectors
from crg.images.reading import shown
from crg.predict.answers import CORRECTED, SORTED_TO, AnswerFile, Line, place_of
from crg.predict.corrections import learn
from crg.predict.sorting import Sorter
from crg.threads import HeldSignals
from crg.types import InputError, printable

_CLASSES_SHOWN = 20  # in the summary
_HEAD = struct.Struct("<qII")  # step, views, width
_CHECK = struct.Struct("<I")
_MOST = 1 << 28  # numbers in one record; a larger one is damage


@dataclass
class Output:
    """Where answers go: a file, and perhaps folders that the images are sorted into."""

    answers: AnswerFile
    top: int = 0  # classes to write with their probabilities
    unsure_below: float = 0.0  # labels are withheld below this probability
    sorter: Sorter | None = None
    counts: Counter[str] = field(default_factory=Counter)  # of the complete file
    per_class: Counter[str] = field(default_factory=Counter)  # "" for unsure
    _errors: dict[str, str | None] = field(default_factory=dict)  # by path; None if answered
    _final: set[str] = field(default_factory=set)  # absolute paths of corrected images

    def __post_init__(self) -> None:
        for line in self.answers.before:
            self._register(line)
        if self.sorter is not None:
            self.sorter.repair(self.answers.before)

    @property
    def has_corrections(self) -> bool:
        """Whether a line has what a person said."""
        return bool(self._final)

    def is_new(self, path: str | Path) -> bool:
        """Whether an image has no answer yet."""
        if self._errors.get(str(path), "none") is None:
            return False
        return not self._final or os.path.abspath(path) not in self._final

    def answer(self, path: Path, answer: Answer) -> None:
        """Write the line of an image, then put the image where it belongs."""
        answer = replace(answer, unsure_below=self.unsure_below)
        self._write({"path": str(path), **answer.as_dict(self.top)})

    def corrected(self, path: str, label: str, step: int) -> None:
        """Write what a person said of an image, unless it was written before."""
        if self.is_new(path):
            line = {"path": path, "label": label, "probability": 1.0, "step": step}
            self._write({**line, CORRECTED: True})

    def unreadable(self, path: str, error: str) -> None:
        """Write the line of an image that cannot be read, unless it was written before."""
        self.counts["unreadable"] += 1
        if self._errors.get(path) != error:
            self.answers.add({"path": path, "error": error})
        self._errors[path] = error

    def summary(self) -> str:
        """How many images were answered, and how many of them changed or are unsure."""
        n = self.counts["answered"]
        kinds = [kind for kind in ("unsure", CORRECTED, "unreadable") if self.counts[kind]]
        more = "".join(f", {self.counts[kind]} {kind}" for kind in kinds)
        images = "1 image" if n == 1 else f"{n} images"
        return f"{images} answered, {self.counts['changed']} of them changed by adaptation{more}."

    def class_summary(self) -> Iterator[str]:
        """How many images each class has, the most frequent first; a long list is cut."""
        named = sorted((-n, name) for name, n in self.per_class.items() if name)
        rows = [(printable(name), -n) for n, name in named[:_CLASSES_SHOWN]]
        rest = named[_CLASSES_SHOWN:]
        if rest:
            rows.append((f"{len(rest)} more classes", -sum(n for n, _ in rest)))
        if self.per_class[""]:
            rows.append(("(unsure)", self.per_class[""]))
        width = max((len(name) for name, _ in rows), default=0)
        for name, n in rows:
            yield f"  {name:{width}} {n:7}"

    def _write(self, line: Line) -> None:
        if self.sorter is not None:
            line[SORTED_TO] = str(self.sorter.place_for(Path(line["path"]), line["label"]))
        self.answers.add(line)
        self._register(line)
        if self.sorter is not None:
            self.answers.sync()  # a file is never put where no line says
            self.sorter.put(Path(line["path"]), Path(line[SORTED_TO]))

    def _register(self, line: Line) -> None:
        self._errors[line["path"]] = line.get("error")
        if line.get(CORRECTED):
            self._final.add(os.path.abspath(line["path"]))
        if "label" in line:
            kinds = [kind for kind in ("changed", "unsure", CORRECTED) if line.get(kind) is True]
            self.counts.update(["answered", *kinds])
            self.per_class[line["label"]] += 1


class Journal:
    """The features of images that were answered after the state was saved last.

    After a crash the state is older than the answers. The journal brings it up to them without the
    images, which may have been moved away since. It is a file of records, each with its step, its
    shape, the features and a checksum; a record that a crash cut off is left out. With ``keep_all``
    it holds the features of the whole stream, for a second pass, and is read record by record.
    """

    def __init__(self, path: Path, keep_all: bool = False) -> None:
        self.path, self.keep_all = path, keep_all

    def add(self, step: int, views: Vectors) -> None:
        """One image more, with its views (V, D) as they were given to the adapter."""
        rows = np.ascontiguousarray(views, dtype="<f4")
        content = _HEAD.pack(step, *rows.shape) + rows.tobytes()
        try:
            with self.path.open("ab") as file:
                file.write(content + _CHECK.pack(zlib.crc32(content)))
        except OSError as error:
            raise InputError(
                f"{self.path} cannot be written ({error.strerror}): "
                "make room and use --resume, for the lines before are kept."
            ) from None

    def clear(self) -> None:
        """The state has all that is here."""
        self.path.unlink(missing_ok=True)

    def cut_after(self, step: int) -> None:
        """Leave out what a crash cut off, and what belongs to later steps than ``step``."""
        end = 0
        for found, _, place in self._records():
            if found > step:
                break
            end = place
        if self.path.exists():
            os.truncate(self.path, end)

    def __iter__(self) -> Iterator[tuple[int, Vectors]]:
        """Step and views (V, D) of every whole record."""
        for step, views, _ in self._records():
            yield step, views

    def _records(self) -> Iterator[tuple[int, Vectors, int]]:
        """Step, views and where the record ends, of every whole record."""
        if not self.path.exists():
            return
        with self.path.open("rb") as file:
            while len(head := file.read(_HEAD.size)) == _HEAD.size:
                step, n_views, width = _HEAD.unpack(head)
                if n_views * width > _MOST:
                    return
                content, check = file.read(4 * n_views * width), file.read(_CHECK.size)
                if check != _CHECK.pack(zlib.crc32(content, zlib.crc32(head))):
                    return
                rows = np.frombuffer(content, "<f4").reshape(n_views, width)
                yield step, rows.astype(np.float32), file.tell()


@dataclass
class ImageStream:
    """Where images go: a classifier, a file of answers, perhaps files to continue with."""

    classifier: Classifier
    output: Output
    state: Path | None = None
    journal: Journal | None = None
    save_every: int = 100  # images
    skip_unreadable: bool = False
    remedy: str = "add --skip-unreadable"  # else, for an image that cannot be read
    workers: int = 1
    corrections: Mapping[str, str] = field(default_factory=dict)  # label by path
    knows_corrections: bool = False  # whether the state has learnt them
    started_at: int | None = None  # images that were learnt before the first one of the answers
    _last: int = field(default=0, init=False)  # step of the last line

    def run(self, paths: Iterable[Path | None], live: bool = False) -> Iterator[Any]:
        """Decide every image that has no answer yet; yields after each.

        One that could not be read before is tried again. With ``live`` each image is decided
        before the next path is asked for; None among the paths says that none is waiting, which
        is a good time to save. Signals take effect between images. The state is saved whatever
        ends the stream. Corrected images come first.
        """
        self._begin()
        try:
            for path, features in self._one_by_one(paths) if live else self._in_batches(paths):
                if path is None:
                    self.save()
                    continue
                with HeldSignals():
                    self._decide(path, features)
                if self.output.counts["answered"] % self.save_every == 0:
                    self.save()
                yield path
        finally:
            self.save()

    def _begin(self) -> None:
        """Learn the corrections, bring the state up to the answers, write what was corrected."""
        if self.corrections and not self.knows_corrections:
            learn(self.classifier, self.corrections, self.workers)
        first = self.classifier.adapter.n_steps
        self.recover()
        if self.corrections and not self.knows_corrections:
            self.save()
        for path, label in self.corrections.items():
            self.output.corrected(path, label, first)

    def recover(self) -> None:
        """Bring the state up to the answers, by the journal or else by the images themselves."""
        lines = {
            line["step"]: line
            for line in self.output.answers.before
            if "step" in line and not line.get(CORRECTED)
        }
        adapter, first = self.classifier.adapter, self.classifier.adapter.n_steps
        self._last = max(lines, default=first if self.started_at is None else self.started_at)
        if self._last < first:
            raise InputError(
                f"The state has seen {first} images but the answers end at {self._last}: "
                "give the state and the answers of the same stream."
            )
        if self.journal is not None:
            self.journal.cut_after(self._last)
        for step, views in self.journal or ():
            if step == adapter.n_steps + 1 and step in lines:
                self.classifier.answer(views, lines[step]["path"])
        missing = [lines[step] for step in sorted(lines) if step > adapter.n_steps]
        files, names = map(place_of, missing), [line["path"] for line in missing]
        for name, _, features in self.classifier.encode_many(files, names, self.workers):
            if isinstance(features, InputError):
                raise InputError(
                    f"{shown(name)} was readable before the interruption and is not now "
                    f"({features}): put it back or start over."
                )
            answer = self.classifier.answer(features, name)
            if self.journal is not None:
                self.journal.add(answer.step, features)

    def save(self) -> None:
        """Answers first, then the state that knows them and nothing beyond them."""
        if self.state is None or self.classifier.adapter.n_steps != self._last:
            return  # a step whose line could not be written is done again
        with HeldSignals():
            self.output.answers.sync()
            self.classifier.save(self.state)
            if self.journal is not None and not self.journal.keep_all:
                self.journal.clear()

    def _decide(self, path: Path, features: Vectors | InputError) -> None:
        """Answer one image and write its line."""
        if isinstance(features, InputError):
            if not self.skip_unreadable:
                raise InputError(f"{str(features).rstrip('.')}, or {self.remedy}.")
            self.output.unreadable(str(path), str(features))
            return
        answer = self.classifier.answer(features, str(path))
        if self.journal is not None:
            self.journal.add(answer.step, answer.features)
        self.output.answer(path, answer)
        self._last = answer.step

    def _in_batches(
        self, paths: Iterable[Path | None]
    ) -> Iterator[tuple[Path, Vectors | InputError]]:
        left = (path for path in paths if path is not None and self.output.is_new(path))
        encoded = self.classifier.encode_many(left, workers=self.workers)
        with contextlib.closing(encoded):  # type: ignore[type-var]
            for name, _, features in encoded:
                yield Path(name), features

    def _one_by_one(
        self, paths: Iterable[Path | None]
    ) -> Iterator[tuple[Path | None, Vectors | InputError]]:
        for path in paths:
            if path is None:
                yield None, InputError("no image is waiting.")
            elif self.output.is_new(path):
                try:
                    yield path, self.classifier.encode(path, str(path))
                except InputError as error:
                    yield path, error
