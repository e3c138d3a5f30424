"""Labelled images as few-shot methods keep them: one queue per class, filled once.

They come from ``Task.resources``, which follows when classes are removed and is saved with
the task. So whoever reads them again after a change of classes needs no state of its own.
"""

from __future__ import annotations

from collections import Counter

from crg.needs import FEW, FewShot
from crg.parts.cache import Cache
from crg.types import InputError, Task, like


def labelled_queues(task: Task, shots: int) -> Cache:
    """A queue per class with its first ``shots`` labelled images, or with all for 0.

    A class without labelled images has an empty queue.
    """
    few: FewShot = task.resources[FEW]
    if not few.labels:  # the last class that had any was removed
        return Cache(task.text_features, 1, seeded=False)
    _check_fit(few, task)
    chosen = few.shots(shots) if shots else few
    rows = like(chosen.features, task.text_features)
    queues = Cache(task.text_features, max(Counter(chosen.labels).values()), seeded=False)
    for row, label in enumerate(chosen.labels):
        queues.offer(label, rows[row, :], 0.0, row)
    return queues


def _check_fit(few: FewShot, task: Task) -> None:
    width, largest = few.features.shape[-1], task.n_classes - 1
    if width != task.width:
        raise InputError(
            f"The labelled images are {width} wide but the text features {task.width}: "
            "encode both with the same model."
        )
    odd = [label for label in few.labels if not 0 <= label <= largest]
    if odd:
        raise InputError(
            f"A labelled image has label {odd[0]} but there are {task.n_classes} classes: "
            f"number them from 0 to {largest}."
        )
