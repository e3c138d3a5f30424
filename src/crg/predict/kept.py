"""The features of images, kept in a store of ``crg encode`` so that they are encoded once.

The store knows the images, the model and the views, and nothing of classes: another method, list
of names or threshold reads the same features. They are in half precision, also for the first call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np

from crg.classifier import Classifier, Encoded
from crg.encoders.base import GivenText
from crg.encoding import EncodingProgress, encode
from crg.features.files import read_features
from crg.features.store import HEADER, read_header
from crg.images.image_set import ImageSet
from crg.types import InputError, Task

_CLASSES = ("image", "other")  # a store has classes; these take part in no answer


class KeptFeatures:
    """The features of images in a store, which is filled first unless it is finished."""

    def __init__(
        self,
        classifier: Classifier,
        paths: Sequence[Path],
        folder: Path,
        resume: bool,
        on_progress: Callable[[EncodingProgress], None],
    ) -> None:
        """Encode what is missing; with ``resume``, images may have been moved from the list."""
        if not (resume and (folder / HEADER).exists() and read_header(folder).finished):
            encoder = getattr(classifier.encoder, "images", classifier.encoder)
            classes = Task(_CLASSES, np.eye(2, encoder.width, dtype=np.float32), 1.0)
            alone = GivenText(encoder, classes, str(folder))
            images = ImageSet("images", _CLASSES, (), tuple(map(str, paths)), tuple(paths))
            how = {"skip_unreadable": True, "on_progress": on_progress}
            try:
                encode(images, alone, classifier.recipe, folder, **how)  # type: ignore[arg-type]
            except InputError as error:
                raise InputError(str(error).replace("--out", "--features")) from None
        self._folder, self._features = folder, read_features(folder)
        self._rows = {str(name): row for row, name in enumerate(self._features.sample_ids)}
        self._errors = read_header(folder).skipped

    def of(self, paths: Iterable[str | Path]) -> Iterator[Encoded]:
        """What ``encode_many`` gives for each image, without its pixels."""
        for name in map(str, paths):
            if name in self._rows:
                yield name, None, self._features.views(self._rows[name])
            else:
                lacking = f"{name} is not in {self._folder}: give another folder with --features."
                yield name, None, InputError(self._errors.get(name, lacking))
