"""Prompting: text features of classes under context vectors, and tuning these for one image.

The text encoder runs over ``chunk`` classes at a time (0 for all at once) and recomputes its
activations in the backward pass, so that memory is that of one chunk. M context vectors of
width E, K classes, D feature width.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Sequence
from typing import Any

from crg.parts.residual import entropy_gradient
from crg.resources import TEXT_ENCODER, PromptableTextEncoder
from crg.types import Array, InputError, Task, like, namespace

Tensor = Any  # a torch tensor; torch is optional and imported where it is used


def endings_of(class_names: Sequence[str]) -> tuple[str, ...]:
    """The texts that follow the context: the name, underscores as spaces, and a full stop.

    >>> endings_of(["red_star", "cat"])
    ('red star.', 'cat.')
    """
    return tuple(f"{name.replace('_', ' ')}." for name in class_names)


def embedded(encoder: PromptableTextEncoder, words: str) -> Tensor:
    """The embeddings (M, E) of ``words``, which a context starts from."""
    vectors = encoder.context_of(words).detach()
    if len(vectors) == 0:
        raise InputError(
            f"The context {words!r} has no words to start from: give some, such as 'a photo of a'."
        )
    return vectors


def check_width(text: Array, task: Task, model: str) -> None:
    """Refuse text features (n, D) that are not as wide as those of the task."""
    if text.shape[1] != task.width:
        raise InputError(
            f"The text encoder {model} gives features of width {text.shape[1]}, but the task's "
            f"are {task.width} wide: give that of the model that encoded the images."
        )


def as_tensor(array: Array, reference: Tensor) -> Tensor:
    """An array of any library as a tensor in the reference's precision and on its device."""
    import numpy as np
    import torch

    host = np.array(array) if isinstance(array, np.ndarray) else array  # torch wants it writeable
    return torch.as_tensor(host).to(reference)


def prompt_features(
    encoder: PromptableTextEncoder, context: Tensor, endings: Sequence[str], chunk: int = 0
) -> Tensor:
    """Unit features (K, D) of a context (M, E) with each ending.

    Differentiable with respect to the context, with recomputation where there are chunks.
    """
    import torch
    from torch.utils.checkpoint import checkpoint

    pieces, encode = _chunks(endings, chunk), functools.partial(encoder.encode, context)
    if len(pieces) > 1 and torch.is_grad_enabled() and context.requires_grad:
        # A frozen encoder draws nothing at random, so no generator state need be restored.
        again = functools.partial(checkpoint, use_reentrant=False, preserve_rng_state=False)
        encode = functools.partial(again, encoder.encode, context)
    return torch.cat([encode(piece) for piece in pieces])


@contextlib.contextmanager
def gradients_enabled() -> Iterator[None]:
    """Record gradients, also inside ``torch.no_grad`` or ``torch.inference_mode``."""
    import torch

    with torch.inference_mode(False), torch.enable_grad():
        yield


def _chunks(endings: Sequence[str], chunk: int) -> list[Sequence[str]]:
    """Pieces of the endings."""
    size = chunk or len(endings)
    return [endings[start : start + size] for start in range(0, len(endings), size)]


class PromptTuning:
    """Tunes a context for each image; keeps nothing but what all images share.

    From words such as "a photo of a", AdamW lowers the entropy of the mean prediction of the kept
    views, H(mean over v of softmax(s f_v . t(c))), with the gradient carried through the text
    encoder to the context c. Every image starts from the same context, so all images share its
    text features and the forward pass. ``options`` has ``context`` (the words to start from),
    ``lr``, ``steps``, ``weight_decay`` and ``chunk``.
    """

    def __init__(self, task: Task, options: Any) -> None:
        self.encoder, self.options = task.resources[TEXT_ENCODER], options
        self.scale, self.endings = task.logit_scale, endings_of(task.class_names)
        self.start = embedded(self.encoder, options.context)  # (M, E)
        self._like = task.text_features[:1, :]
        self.text = self.text_under(self.start)  # (K, D), under the words themselves
        check_width(self.text, task, self.encoder.name)

    def text_under(self, context: Tensor) -> Array:
        """Text features (K, D) under a context (M, E), in the library of the task."""
        import torch

        with torch.no_grad():
            features = prompt_features(self.encoder, context, self.endings, self.options.chunk)
        return like(features, self._like)

    def tuned_contexts(self, kept: Sequence[Array]) -> Tensor:
        """The context of each image after the steps of AdamW, (N, M, E)."""
        import torch

        c = self.options
        with gradients_enabled():
            context = self.start.expand(len(kept), *self.start.shape).clone()
            # AdamW works entry by entry, so all images' contexts can share one tensor.
            optimiser = torch.optim.AdamW([context], c.lr, weight_decay=c.weight_decay)
            for step in range(c.steps):
                context.grad = self._gradients(context.detach(), kept, shared=step == 0)
                optimiser.step()
        return context.detach()

    def _gradients(self, contexts: Tensor, kept: Sequence[Array], shared: bool) -> Tensor:
        """dH / dc at each image's context, (N, M, E); one pass for all while it is ``shared``."""
        import torch

        if shared:
            slopes = [self.gradient(views, self.text) for views in kept]
            return self.pull_back(self.start, slopes)
        return torch.cat([
            self.pull_back(context, [self.gradient(views, self.text_under(context))])
            for context, views in zip(contexts, kept, strict=True)
        ])  # fmt: skip

    def gradient(self, views: Array, text: Array) -> Array:
        """dH / dt (K, D) for kept views (m, D): s slope^T f with slope = dH / dlogits."""
        slope = entropy_gradient(self.scale * (views @ text.T))  # (m, K)
        return self.scale * (slope.T @ views)

    def pull_back(self, context: Tensor, slopes: list[Array]) -> Tensor:
        """For each of N gradients (K, D) of text features, the gradient of ``context``, (N, M, E).

        One pass forwards through the encoder serves all N, one backwards each.
        """
        import torch

        gradients = as_tensor(namespace(self.text).stack(slopes), context)
        with gradients_enabled():
            total, start = context.new_zeros((len(gradients), *context.shape)), 0
            for names in _chunks(self.endings, self.options.chunk):
                leaf = context.detach().clone().requires_grad_()
                features = self.encoder.encode(leaf, names)
                part = gradients[:, start : start + len(names)].to(features)
                start += len(names)
                for n, gradient in enumerate(part):
                    more = n + 1 < len(part)
                    (found,) = torch.autograd.grad(features, leaf, gradient, retain_graph=more)
                    total[n] += found
        return total
