"""The second pass over a folder: every image is answered with what all of them taught.

The first pass writes its answers and all features to files. The second reads them and needs
neither the images nor the encoder. It does not change those files, so that it may be stopped
and begun again at any moment: the same answers come out, and lines that are there stay.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from crg.classifier import Classifier
from crg.encoders.base import Vectors
from crg.predict.corrections import learn
from crg.predict.journal import Journal
from crg.predict.lines import CORRECTED, Line
from crg.predict.stream import Counts, Output
from crg.threads import HeldSignals, one_blas_thread
from crg.types import InputError, SampleId


class Stored:
    """The images of the first pass, as often as they are asked for."""

    def __init__(self, lines: Sequence[Line], features: Journal) -> None:
        """``lines`` are those of answered images, in the order of their steps."""
        self._lines, self._features = lines, features

    def __iter__(self) -> Iterator[tuple[SampleId, Vectors]]:
        """Path and views (V, D) of each image."""
        n_read = 0
        for line, (step, views) in zip(self._lines, self._features, strict=False):
            if step != line["step"]:
                break
            n_read += 1
            yield line["path"], views
        if n_read < len(self._lines):
            raise InputError(
                f"{self._features.path} lacks features of the first pass: start over with "
                "--overwrite."
            )


def second_pass(
    classifier: Classifier,
    first: Sequence[Line],
    features: Journal,
    output: Output,
    workers: int = 1,
) -> Iterator[Counts]:
    """Answer again what the lines ``first`` have answered; yields the counts after each.

    Images that have a line in ``output`` are left as they are. What people corrected is learnt
    again, as the images that were steps are, and written last: until then the files are there.
    """
    answered = [line for line in first if "step" in line and not line.get(CORRECTED)]
    paths = {line["path"] for line in answered}
    for line in first:
        if "error" in line and line["path"] not in paths:
            output.unreadable(Path(line["path"]), line["error"])
    corrected = {line["path"]: line for line in first if line.get(CORRECTED)}
    if any(output.is_new(path) for path in paths):
        stored = Stored(answered, features)
        with one_blas_thread():
            classifier.adapter.finish(stored)
        learn(classifier, {path: line["label"] for path, line in corrected.items()}, workers)
        yield from _answers(classifier, answered, stored, output)
    for path, line in corrected.items():
        output.corrected(path, line["label"], line["step"])


def _answers(
    classifier: Classifier, answered: Sequence[Line], stored: Stored, output: Output
) -> Iterator[Counts]:
    adapter, names = classifier.adapter, classifier.task.class_names
    with one_blas_thread():
        for line, (path, views) in zip(answered, stored, strict=True):
            if output.is_new(line["path"]):
                answer = classifier.as_answer(adapter.answer(views, path), views, line["step"])
                with HeldSignals():
                    output.answer(Path(line["path"]), answer, names)
                yield output.counts
