"""A stream of image files through a classifier, one line each, resumable at any moment.

The features of an image are kept in a journal, then its line is written, and from time to time
the lines are synced, the state is saved and the journal cleared, in this order. So after any stop
the answers are never behind the state, and the journal has what the state does not know yet.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from crg.classifier import Answer, Classifier
from crg.encoders.base import Vectors
from crg.predict import corrections
from crg.predict.answers import AnswerFile, Line
from crg.predict.journal import Journal
from crg.threads import HeldSignals
from crg.types import InputError


@dataclass
class Counts:
    """What a stream came to."""

    answered: int = 0
    changed: int = 0
    unreadable: int = 0


@dataclass
class ImageStream:
    """Where images go: a classifier, a file of answers, perhaps files to continue with."""

    classifier: Classifier
    answers: AnswerFile
    state: Path | None = None
    journal: Journal | None = None
    save_every: int = 100  # images
    skip_unreadable: bool = False
    workers: int = 1
    corrected: Mapping[str, str] = field(default_factory=dict)  # path -> label, by a person
    knows_corrected: bool = False  # whether the state has learnt them already
    _known: dict[str, str | None] = field(default_factory=dict, init=False)  # None: answered
    _final: set[str] = field(default_factory=set, init=False)  # corrected images, in full
    _last: int = field(default=0, init=False)  # step of the last line

    def run(self, paths: Iterable[Path | None], live: bool = False) -> Iterator[Counts]:
        """Decide every image that has no answer yet; yields the counts after each.

        One that could not be read before is tried again. With ``live`` each image is decided
        before the next path is asked for; None among the paths says that none is waiting, which
        is a good time to save. Signals take effect between images. The state is saved whatever
        ends the stream. Corrected images come first.
        """
        self._begin()
        counts = Counts()
        try:
            for path, features in self._one_by_one(paths) if live else self._in_batches(paths):
                if path is None:
                    self.save()
                    continue
                with HeldSignals():
                    self._decide(path, features, counts)
                if counts.answered % self.save_every == 0:
                    self.save()
                yield counts
        finally:
            self.save()

    def _begin(self) -> None:
        """Learn the corrections, bring the state up to the answers, answer what was corrected."""
        if not self.knows_corrected:
            corrections.learn(self.classifier, self.corrected, self.workers)
        first = self.classifier.adapter.n_steps
        self.recover()
        if self.corrected and not self.knows_corrected:
            self.save()
        self._known = {line["path"]: line.get("error") for line in self.answers.before}
        for path, label in self.corrected.items():
            if self._known.get(path, "none") is not None:
                self.answers.add(corrections.as_line(path, label, first))
                self._known[path] = None
        self._final = {os.path.abspath(path) for path in self.corrected}

    def recover(self) -> None:
        """Bring the state up to the answers, by the journal or else by the images themselves."""
        lines = {
            line["step"]: line
            for line in self.answers.before
            if "step" in line and not corrections.is_corrected(line)
        }
        adapter, first = self.classifier.adapter, self.classifier.adapter.n_steps
        self._last = max(lines, default=first)
        if self._last < first:
            raise InputError(
                f"The state has seen {first} images but the answers end at {self._last}: "
                "give the state and the answers of the same stream."
            )
        for step, views in self.journal or ():
            if step == adapter.n_steps + 1 and step in lines:
                self.classifier.answer(views, lines[step]["path"])
        missing = [Path(lines[step]["path"]) for step in sorted(lines) if step > adapter.n_steps]
        for name, features in self.classifier.encode_many(missing, workers=self.workers):
            if isinstance(features, InputError):
                raise InputError(
                    f"{name} was readable before the interruption and is not now ({features}): "
                    "put it back or start over."
                )
            self.classifier.answer(features, name)

    def save(self) -> None:
        """Answers first, then the state that knows them and nothing beyond them."""
        if self.state is None or self.classifier.adapter.n_steps != self._last:
            return  # a step whose line could not be written is done again
        with HeldSignals():
            self.answers.sync()
            self.classifier.save(self.state)
            if self.journal is not None:
                self.journal.clear()

    def _decide(self, path: Path, features: Vectors | InputError, counts: Counts) -> None:
        """Answer one image and write its line."""
        if isinstance(features, InputError):
            if not self.skip_unreadable:
                raise features
            counts.unreadable += 1
            if self._known.get(str(path)) != str(features):  # said once is enough
                self.answers.add({"path": str(path), "error": str(features)})
            self._known[str(path)] = str(features)
            return
        answer = self.classifier.answer(features, str(path))
        if self.journal is not None:
            self.journal.add(answer.step, answer.features)
        self.answers.add(as_line(path, answer))
        self._known[str(path)], self._last = None, answer.step
        counts.answered += 1
        counts.changed += answer.changed

    def _in_batches(
        self, paths: Iterable[Path | None]
    ) -> Iterator[tuple[Path, Vectors | InputError]]:
        left = (path for path in paths if path is not None and self._is_new(path))
        encoded = self.classifier.encode_many(left, workers=self.workers)
        with contextlib.closing(encoded):  # type: ignore[type-var]
            for name, features in encoded:
                yield Path(name), features

    def _one_by_one(
        self, paths: Iterable[Path | None]
    ) -> Iterator[tuple[Path | None, Vectors | InputError]]:
        for path in paths:
            if path is None:
                yield None, InputError("no image is waiting.")
            elif self._is_new(path):
                try:
                    yield path, self.classifier.encode(path, str(path))
                except InputError as error:
                    yield path, error

    def _is_new(self, path: Path) -> bool:
        """Whether an image has no answer yet, nor was corrected under another name."""
        if self._known.get(str(path), "none") is None:
            return False
        return not self._final or os.path.abspath(path) not in self._final


def as_line(path: Path, answer: Answer) -> Line:
    """The fields of an answer that are written down."""
    return {
        "path": str(path),
        "label": answer.label,
        "probability": round(answer.probability, 6),
        "zero_shot_label": answer.zero_shot_label,
        "zero_shot_probability": round(answer.zero_shot_probability, 6),
        "changed": answer.changed,
        "step": answer.step,
    }
