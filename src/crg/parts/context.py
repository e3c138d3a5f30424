"""A learnt context: its start, its training, its file, and a memory of what was learnt lately.

Only the text encoder runs: the images enter as features that were stored before. One text
pass serves all images of a batch.

Training depends on nothing but what goes into it, so equal input may get the earlier answer.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save as to_bytes

from crg.atomic import replacing
from crg.parts.prompting import Tensor, gradients_enabled
from crg.resources import PromptableTextEncoder
from crg.types import Array, InputError, Task, parsed_json

FORMAT = "crg-context"
VERSION = 1

Numbers: TypeAlias = np.ndarray[Any, Any]


@dataclass(frozen=True, eq=False)
class Context:
    """Context vectors of width E, shared by all classes or per class."""

    vectors: Numbers  # (M, E), or (K, M, E) if there are class names
    model: str  # whose text encoder they are for
    class_names: tuple[str, ...] = ()  # of the first axis; none if shared
    words: str = ""  # what training began with; nothing if at random

    def __post_init__(self) -> None:
        if self.vectors.ndim != (3 if self.class_names else 2):
            raise ValueError(f"vectors of shape {self.vectors.shape}")
        if self.class_names and len(self.class_names) != len(self.vectors):
            raise ValueError(f"{len(self.class_names)} names for {len(self.vectors)} classes")
        if 0 in self.vectors.shape or self.vectors.dtype.kind != "f":
            raise ValueError(f"vectors of {self.vectors.dtype} and shape {self.vectors.shape}")
        if not np.isfinite(self.vectors).all():
            raise ValueError("vectors that are not finite")

    def for_classes(self, names: Sequence[str]) -> Numbers:
        """(M, E) if shared, else (K, M, E): a class without its own gets the mean of all."""
        if not self.class_names:
            return self.vectors
        places = {name: place for place, name in enumerate(self.class_names)}
        mean = self.vectors.mean(axis=0)
        return np.stack([self.vectors[places[n]] if n in places else mean for n in names])


def write_context(path: str | os.PathLike[str], context: Context) -> None:
    """Write one file, at once or not at all."""
    vectors = np.ascontiguousarray(context.vectors)
    header = {
        "format": FORMAT,
        "version": VERSION,
        "model": context.model,
        "class_names": list(context.class_names),
        "words": context.words,
    }
    header["sha256"] = _digest(header, vectors)
    with replacing(path) as partial:
        partial.write_bytes(to_bytes({"context": vectors}, {"crg": json.dumps(header)}))


def check_replaceable(path: str | os.PathLike[str]) -> None:
    """Refuse a place that holds something else than a context."""
    if not Path(path).is_file():
        return
    try:
        read_context(path)
    except InputError:
        raise InputError(
            f"{path} exists and is not a learnt context: choose another name."
        ) from None


def read_context(path: str | os.PathLike[str]) -> Context:
    """Read what ``write_context`` wrote; anything else is refused in one sentence."""
    header, vectors = _contents(Path(path))
    if header.get("version") != VERSION:
        raise InputError(
            f"{path} is a context of format version {header.get('version')!r:.40} but this crg "
            f"reads version {VERSION}: use the crg that wrote it or learn the context again."
        )
    if header.pop("sha256", None) != _digest(header, vectors):
        raise _damaged(path, "its checksum does not fit")
    try:
        names = tuple(str(name) for name in header["class_names"])
        return Context(vectors, str(header["model"]), names, str(header["words"]))
    except (KeyError, TypeError, ValueError) as error:
        raise _damaged(path, f"{error} is missing or wrong") from None


def _contents(path: Path) -> tuple[dict[str, Any], Numbers]:
    if path.is_dir():
        raise InputError(f"{path} is a folder: give a file that coop wrote.")
    try:
        with safe_open(path, framework="np") as file:
            header = parsed_json((file.metadata() or {}).get("crg", "{}"))
            if not isinstance(header, dict) or header.get("format") != FORMAT:
                raise InputError(f"{path} is not a learnt context: give a file that coop wrote.")
            return header, file.get_tensor("context")
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error}): check the path.") from None
    except (SafetensorError, ValueError) as error:
        raise _damaged(path, " ".join(str(error).split())) from None


def _digest(header: Mapping[str, Any], vectors: Numbers) -> str:
    """Over all that the file says, so that no part of it can change alone."""
    facts = json.dumps([sorted(header.items()), vectors.shape, str(vectors.dtype)])
    digest = hashlib.sha256(facts.encode())
    digest.update(np.ascontiguousarray(vectors).data)
    return digest.hexdigest()


def _damaged(path: str | os.PathLike[str], why: str) -> InputError:
    return InputError(
        f"{path} is damaged ({why}): restore it from a copy or learn the context again."
    )


SPREAD = 0.02  # standard deviation of a random start


def starting_context(
    encoder: PromptableTextEncoder, class_names: Sequence[str], words: str, length: int, seed: int
) -> Numbers:
    """Vectors (M, E), or (K, M, E) if there are class names, from words or from N(0, 0.02).

    Random vectors of a class depend on its name, not on its place among the others.
    """
    if words:
        one = _from_words(encoder, words)
        return np.stack([one] * len(class_names)) if class_names else one
    width, dtype = context_width(encoder), _as_numbers(encoder, "a").dtype
    seeds = [[seed, _number(name)] for name in class_names] or [[seed]]
    drawn = [np.random.default_rng(s).normal(0.0, SPREAD, (length, width)) for s in seeds]
    return np.stack(drawn).astype(dtype) if class_names else drawn[0].astype(dtype)


def context_width(encoder: PromptableTextEncoder) -> int:
    """E."""
    return int(encoder.context_of("a").shape[-1])


def check_fit(context: Context, encoder: PromptableTextEncoder, path: str) -> None:
    """Refuse a context that was learnt with another text encoder."""
    width, needed = context.vectors.shape[-1], context_width(encoder)
    if context.model != encoder.name or width != needed:
        raise InputError(
            f"{path} was learnt with {context.model} (width {width}) but the text encoder is "
            f"{encoder.name} (width {needed}): give a context of the same model."
        )


def check_width(text: Array, task: Task, model: str) -> None:
    """Refuse text features (n, D) that are not as wide as those of the task."""
    if text.shape[1] != task.width:
        raise InputError(
            f"The text encoder {model} gives features of width {text.shape[1]}, but the task's "
            f"are {task.width} wide: give that of the model that encoded the images."
        )


def _from_words(encoder: PromptableTextEncoder, words: str) -> Numbers:
    vectors = _as_numbers(encoder, words)
    if len(vectors) == 0:
        raise InputError(
            f"The context {words!r} has no words to start from: give some, such as 'a photo of a'."
        )
    return vectors


def _as_numbers(encoder: PromptableTextEncoder, words: str) -> Numbers:
    vectors: Numbers = encoder.context_of(words).detach().cpu().numpy()
    return vectors


def _number(name: str) -> int:
    return int.from_bytes(
        hashlib.sha256(name.encode("utf-8", "surrogatepass")).digest()[:8], "little"
    )


WARM_UP_LR = 1e-5  # during the first epoch


@dataclass(frozen=True)
class TrainingPlan:
    """How to train."""

    epochs: int
    lr: float = 0.002
    batch: int = 32
    momentum: float = 0.9
    weight_decay: float = 5e-4
    seed: int = 0  # of the order of images


@dataclass(frozen=True, eq=False)
class Learnt:
    """What came of training."""

    context: Tensor  # of the shape it began with
    losses: tuple[float, ...]  # the mean of each epoch


def epochs_for(shots: int) -> int:
    """As in the authors' code: 50 epochs for 1 shot, 100 for 2 and 4, 200 for 8 and 16.

    >>> [epochs_for(shots) for shots in (1, 2, 4, 8, 16)]
    [50, 100, 100, 200, 200]
    """
    return 50 if shots == 1 else 100 if shots <= 4 else 200


def learning_rates(epochs: int, lr: float) -> list[float]:
    """One per epoch: 1e-5 in the first, then lr (1 + cos(pi (e - 1) / epochs)) / 2.

    The cosine starts after the warm-up and would need one epoch more to end at zero.
    """
    decay = [lr * (1 + math.cos(math.pi * e / epochs)) / 2 for e in range(epochs - 1)]
    return [WARM_UP_LR, *decay]


def batches(n_images: int, plan: TrainingPlan) -> Iterator[list[np.ndarray[Any, Any]]]:
    """For each epoch the rows of each batch, in a new order; a last batch that is not full is
    left out, unless it is the only one.
    """
    rng = np.random.default_rng([plan.seed, n_images])
    for _ in range(plan.epochs):
        order = rng.permutation(n_images)
        n_full = max(1, n_images // plan.batch)
        yield [order[b * plan.batch : (b + 1) * plan.batch] for b in range(n_full)]


def cross_entropy(text: Tensor, images: Tensor, labels: Tensor, scale: float) -> Tensor:
    """Mean over images of -ln softmax(s f . t)_y."""
    from torch.nn.functional import cross_entropy as mean_loss

    return mean_loss(scale * images.to(text) @ text.T, labels)


def learn_context(
    encode: Callable[[Tensor], Tensor],
    start: Tensor,
    images: Tensor,
    labels: Sequence[int],
    scale: float,
    plan: TrainingPlan,
) -> Learnt:
    """Train from ``start``; ``encode(context)`` gives one unit feature per class, (C, D).

    ``images`` is (F, D) and ``labels`` F numbers in 0..C-1. Should a gradient overflow,
    training ends with the last context that is finite.
    """
    import torch

    answers = torch.tensor(labels, device=images.device)
    losses: list[float] = []
    with gradients_enabled():
        context = start.detach().clone().requires_grad_(True)
        optimizer = torch.optim.SGD(
            [context], plan.lr, momentum=plan.momentum, weight_decay=plan.weight_decay
        )
        rates = learning_rates(plan.epochs, plan.lr)
        for lr, epoch in zip(rates, batches(len(labels), plan), strict=True):
            optimizer.param_groups[0]["lr"] = lr
            total = 0.0
            for rows in epoch:
                loss = cross_entropy(encode(context), images[rows], answers[rows], scale)
                (context.grad,) = torch.autograd.grad(loss, [context])
                if not bool(torch.isfinite(context.grad).all()):
                    return Learnt(context.detach(), tuple(losses))
                optimizer.step()
                total += float(loss.detach())
            losses.append(total / len(epoch))
    return Learnt(context.detach(), tuple(losses))


_PLACES = 8
_learnt: OrderedDict[str, Learnt] = OrderedDict()


def learn_once(
    encode: Callable[[Tensor], Tensor],
    start: Tensor,
    images: Tensor,
    labels: Sequence[int],
    scale: float,
    plan: TrainingPlan,
) -> Learnt:
    """What ``learn_context`` gives, remembered for a few different trainings."""
    import torch

    with gradients_enabled(), torch.no_grad():
        begin = encode(start)  # stands for the encoder and its classes
    key = _training_key([begin, start, images], f"{list(labels)} {scale!r} {astuple(plan)}")
    if key not in _learnt:
        _learnt[key] = learn_context(encode, start, images, labels, scale, plan)
        if len(_learnt) > _PLACES:
            _learnt.popitem(last=False)
    return _learnt[key]


def forget() -> None:
    """Let the next training be done anew."""
    _learnt.clear()


def _training_key(tensors: Sequence[Tensor], facts: str) -> str:
    digest = hashlib.sha256(facts.encode())
    for tensor in tensors:
        array = np.ascontiguousarray(tensor.detach().cpu().numpy())
        digest.update(f"{array.shape} {array.dtype}".encode())
        digest.update(array.data)
    return digest.hexdigest()
