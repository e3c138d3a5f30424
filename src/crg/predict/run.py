"""A stream of image files through a classifier, one line each, resumable at any moment.

The state is saved only after the lines that it knows of are written, so after a crash the
file of answers is never behind the state. Images whose line is there but which the state
does not know are shown to the classifier again, in the same order, without a second line.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from crg.classifier import Answer, Classifier
from crg.predict.answers import AnswerFile, Line
from crg.types import InputError


@dataclass
class Counts:
    """What a stream came to."""

    answered: int = 0
    changed: int = 0
    unreadable: int = 0


@dataclass
class ImageStream:
    """Where images go: a classifier, a file of answers, perhaps a file for the state."""

    classifier: Classifier
    answers: AnswerFile
    state: Path | None = None
    save_every: int = 100  # images
    skip_unreadable: bool = False
    workers: int = 1
    _known: dict[str, str | None] = field(default_factory=dict, init=False)  # None: answered

    def run(self, paths: Iterable[Path], live: bool = False) -> Iterator[Counts]:
        """Decide every image that has no answer yet; yields the counts after each.

        One that could not be read before is tried again. With ``live`` each image is
        decided before the next path is asked for. The state is saved whatever ends the stream.
        """
        self.replay()
        self._known = {line["path"]: line.get("error") for line in self.answers.before}
        left = (path for path in paths if self._known.get(str(path), "none") is not None)
        counts = Counts()
        try:
            for path, answer in self._one_by_one(left) if live else self._in_batches(left):
                self._write(path, answer, counts)
                if self.state is not None and counts.answered % self.save_every == 0:
                    self.classifier.save(self.state)
                yield counts
        finally:
            if self.state is not None:
                self.classifier.save(self.state)

    def replay(self) -> None:
        """Show the classifier the images that have a line but are not in its state."""
        lines = [line for line in self.answers.before if "step" in line]
        seen = self.classifier.adapter.n_steps
        if lines and lines[-1]["step"] < seen:
            raise InputError(
                f"The state has seen {seen} images but the answers end at {lines[-1]['step']}: "
                "give the state and the answers of the same stream."
            )
        missing = [Path(line["path"]) for line in lines if line["step"] > seen]
        for path, answer in self._in_batches(missing):
            if isinstance(answer, InputError):
                raise InputError(
                    f"{path} was readable before the interruption and is not now ({answer}): "
                    "put it back or start over."
                )

    def _write(self, path: Path, answer: Answer | InputError, counts: Counts) -> None:
        if isinstance(answer, InputError):
            if not self.skip_unreadable:
                raise answer
            counts.unreadable += 1
            if self._known.get(str(path)) != str(answer):  # told once is enough
                self.answers.add({"path": str(path), "error": str(answer)})
            self._known[str(path)] = str(answer)
            return
        self._known[str(path)] = None
        counts.answered += 1
        counts.changed += answer.changed
        self.answers.add(as_line(path, answer))

    def _in_batches(self, paths: Iterable[Path]) -> Iterator[tuple[Path, Answer | InputError]]:
        asked: list[Path] = []  # the views are made some images ahead of the answers
        answers = self.classifier.predict_many(_noted(paths, asked), workers=self.workers)
        with contextlib.closing(answers):  # type: ignore[type-var]
            for answer in answers:
                yield asked.pop(0), answer

    def _one_by_one(self, paths: Iterable[Path]) -> Iterator[tuple[Path, Answer | InputError]]:
        for path in paths:
            try:
                answer: Answer | InputError = self.classifier.predict(path)
            except InputError as error:
                answer = error
            yield path, answer


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


def _noted(paths: Iterable[Path], asked: list[Any]) -> Iterator[Path]:
    for path in paths:
        asked.append(path)
        yield path
