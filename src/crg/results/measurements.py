"""Measurements: the figures kept of every step, the metrics made of them, and their packing.

Bits become hexadecimal text, and class numbers compressed bytes in base64. Answers are stored by
row of the file, so that runs in different orders can be compared image by image.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from crg import metrics
from crg.streams.orders import Stream
from crg.types import Step

Numbers = np.ndarray[Any, Any]

NOT_STREAMED = 65_535  # in place of a class number


def packed_bits(bits: Numbers) -> str:
    """One bit each, as hexadecimal text.

    >>> packed_bits(np.array([True, False, False, True]))
    '90'
    """
    return np.packbits(bits).tobytes().hex()


def unpacked_bits(text: str, count: int) -> Numbers:
    """The first ``count`` bits that ``packed_bits`` packed.

    >>> unpacked_bits("90", 4).tolist()
    [True, False, False, True]
    """
    packed = np.frombuffer(bytes.fromhex(text), dtype=np.uint8)
    return np.unpackbits(packed, count=count).astype(bool)


def predicted_rows(metrics_of_run: Mapping[str, Any]) -> Numbers:
    """The answer for each row of the file (N,), as class numbers; -1 where it did not come."""
    content = zlib.decompress(base64.b64decode(metrics_of_run["predicted"]))
    answers = np.frombuffer(content, dtype="<u2").astype(np.int64)
    return np.where(answers == NOT_STREAMED, -1, answers)


@dataclass
class Measurements:
    """The few figures per step that the metrics need; logits would fill the memory."""

    predicted: list[int] = field(default_factory=list)
    confidence: list[float] = field(default_factory=list)
    surprise: list[float] = field(default_factory=list)  # of images that have a class
    outside: list[float] = field(default_factory=list)  # NaN where nothing was decided
    milliseconds: list[float] = field(default_factory=list)
    purity: list[list[float]] = field(default_factory=list)  # [step, purity]

    def add(self, step: Step) -> None:
        """Record one step."""
        self.predicted.append(step.prediction.label)
        self.confidence.append(float(step.prediction.probs[step.prediction.label]))
        self.outside.append(step.prediction.decision.outside)
        self.milliseconds.append(step.milliseconds)
        if step.label is not None:
            logits = np.asarray(step.prediction.logits)[None, :]
            self.surprise.append(float(metrics.surprises(logits, np.array([step.label]))[0]))
        if step.purity is not None:
            self.purity.append([step.index + 1, step.purity])

    def figures(self, stream: Stream, mislabelled: Any = None) -> dict[str, Any]:
        """All metrics, or only times without labels; plain values, ready for JSON.

        Images of no class are answered, but not scored.
        """
        mean, median = np.mean(self.milliseconds), np.median(self.milliseconds)
        speed = {"ms_per_step": float(mean), "ms_per_step_median": float(median)}
        if stream.labels is None:
            return speed
        truth = stream.labels[stream.rows]
        scored = truth >= 0
        labels, predicted = truth[scored], np.array(self.predicted)[scored]
        confidence, right = np.array(self.confidence)[scored], predicted == labels
        names = stream.features.task.class_names
        by_class = metrics.per_class_accuracy(predicted, labels, len(names)).tolist()
        return {
            "accuracy": metrics.accuracy(predicted, labels),
            "per_class_accuracy": {
                name: None if np.isnan(x) else x for name, x in zip(names, by_class, strict=True)
            },
            "worst_class_accuracy": metrics.worst_class_accuracy(predicted, labels, len(names)),
            "ece": metrics.expected_calibration_error(confidence, right),
            "aurc": metrics.risk_coverage_area(confidence, right),
            "accuracy_at_90": metrics.accuracy_at_coverage(confidence, right, 0.9),
            "outside_auroc": self._outside_auroc(scored),
            "nll": float(np.mean(self.surprise)),
            "reliability": [list(each) for each in metrics.reliability(confidence, right)],
            "purity": self.purity[-1][1] if self.purity else None,
            "purity_over_time": self.purity,
            "n_scored": len(labels),
            "n_outside": len(truth) - len(labels),
            **self._by_image(stream, scored, right),
            "mislabelled": mislabelled,
            **speed,
        }

    def _outside_auroc(self, scored: Numbers) -> float | None:
        """How well ``outside`` ranks images of no class above the others; None without any."""
        known = not scored.all() and not np.isnan(self.outside).any()
        return metrics.auroc(np.array(self.outside), ~scored) if known else None

    def _by_image(self, stream: Stream, scored: Numbers, right: Numbers) -> dict[str, str]:
        """The answers to every image, by row of the file and by position in the stream."""
        n_rows, rows = len(stream.features), stream.rows[scored]
        answers = np.full(n_rows, NOT_STREAMED, dtype="<u2")
        answers[stream.rows] = self.predicted
        packed = {
            "correct": packed_bits(_marked(rows[right], n_rows)),
            "right_in_order": packed_bits(right),
            "predicted": base64.b64encode(zlib.compress(answers.tobytes(), 9)).decode("ascii"),
        }
        some = len(rows) < n_rows
        return packed | ({"streamed": packed_bits(_marked(rows, n_rows))} if some else {})


def _marked(rows: Numbers, n_rows: int) -> Numbers:
    by_row = np.zeros(n_rows, dtype=bool)
    by_row[rows] = True
    return by_row
