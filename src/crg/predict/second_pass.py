"""The second pass over a folder: every image is answered with what all of them taught.

The first pass writes its answers and all features to files. The second reads them and needs
neither the images nor the encoder. It does not change those files, so that it may be stopped
and begun again at any moment: the same answers come out, and lines that are there stay.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from crg.answer import answer_for
from crg.classifier import Classifier
from crg.encoders.base import Vectors
from crg.methods.base import Method
from crg.methods.registry import get_method
from crg.predict.answers import CORRECTED, Line
from crg.predict.corrections import learn
from crg.predict.stream import Journal, Output
from crg.threads import HeldSignals, one_blas_thread
from crg.types import InputError


def gains_by_two(method: str) -> bool:
    """Whether a method learns images better together, once it has seen all of them."""
    return get_method(method).finish is not Method.finish


def second_pass(
    classifier: Classifier,
    first: Sequence[Line],
    features: Journal,
    output: Output,
    workers: int = 1,
) -> Iterator[Any]:
    """Answer again what the lines ``first`` have answered; yields after each image.

    Images that have a line in ``output`` are left as they are. What people corrected is learnt
    again, as the images that were steps are, and written last: until then the files are there.
    """
    corrected = {line["path"]: line for line in first if line.get(CORRECTED)}
    answered = [line for line in first if "step" in line and not line.get(CORRECTED)]
    paths = {line["path"] for line in answered}
    views: Iterator[Vectors] = iter(())
    if any(map(output.is_new, paths)):
        names = [line["path"] for line in answered]
        with one_blas_thread():
            classifier.adapter.finish(zip(names, _stored(answered, features), strict=True))
        if corrected:
            learn(classifier, {path: line["label"] for path, line in corrected.items()}, workers)
        views = _stored(answered, features)
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
                    output.answer(Path(line["path"]), answer)
                yield line
    for path, line in corrected.items():
        output.corrected(path, line["label"], line["step"])


def _stored(answered: Sequence[Line], features: Journal) -> Iterator[Vectors]:
    """The views (V, D) of each image that the first pass answered."""
    n_read = 0
    for line, (step, views) in zip(answered, features, strict=False):
        if step != line["step"]:
            break
        n_read += 1
        yield views
    if n_read < len(answered):
        raise InputError(
            f"{features.path} lacks features of the first pass: start over with --overwrite."
        )
