"""TPT: test-time prompt tuning (Shu et al., NeurIPS 2022).

The words before the class name are replaced by vectors that start from the embeddings of
"a photo of a". For each image, one AdamW step lowers the entropy of the mean prediction of
its confident views, backpropagated through the text encoder; the original view is then
predicted with the tuned prompt, and the vectors go back to where they started.

| equation | function | symbols |
| --- | --- | --- |
| (3) L = H(p~), p~ mean over kept views | parts.prompting | c context, t(c) text features |
| (4) keep the views of lowest entropy | ops.confident_views | rho fraction kept |
| c' = c - lr (wd c + g / (abs g + eps)) | parts.prompting | g = dL/dc, one AdamW step |
| logits = s f_0 . t(c') | step_many | f_0 original view, s logit scale |

Nothing is learnt from one image for the next. The text features of the task are not used
but for their library, precision and width: the text encoder gives those of "a photo of a
<name>.", also to choose the confident views. With a single view its own entropy is lowered,
which sharpens a prediction and seldom changes it.

Differs from the paper: max(1, floor(rho V)) views are kept, where the authors' floor(rho V)
is none below ten; all is in full precision. The weight decay, 0.01, is in no formula of the
paper: it is the default of the authors' optimiser.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from crg.methods.registry import Method, option, register
from crg.ops import Confident, confident_views
from crg.parts.prompting import PromptTuning
from crg.resources import TEXT_ENCODER
from crg.types import Array, Diagnostics, Prediction, Sample

_AT_ONCE = 16  # images that share a pass through the text encoder


@register
class TPT(Method):
    """Tunes the words before the class name for each image, and forgets them; needs torch."""

    name = "tpt"
    forgets = True
    paper = (
        "Shu et al., Test-Time Prompt Tuning for Zero-Shot Generalization in Vision-Language "
        "Models, NeurIPS 2022"
    )
    needs = (TEXT_ENCODER,)
    _not_saved = Method._not_saved | {"_tuning"}

    @dataclass(frozen=True)
    class Config:
        """The paper's constants."""

        context: str = option("a photo of a", "words that the context vectors start from")
        view_share: float = option(0.1, "fraction of views kept", above=0, at_most=1)
        lr: float = option(5e-3, "size of the AdamW step", at_least=0, at_most=1)
        steps: int = option(1, "AdamW steps per image", at_least=0, at_most=1000)
        weight_decay: float = option(0.01, "AdamW's weight decay", at_least=0, at_most=1)
        chunk: int = option(256, "classes at a time, which bounds memory; 0 for all", at_least=0)

    def reset(self) -> None:
        """There is nothing to forget, only text features that all images start from."""
        self._tuning = PromptTuning(self.task, self.config)

    _derive = reset  # class names have changed

    def step(self, sample: Sample) -> Prediction:
        """Tune the prompt, predict the original view with it."""
        return self.step_many([sample])[0]

    def step_many(self, samples: Sequence[Sample]) -> list[Prediction]:
        """Answer several images, which share a forward pass through the text encoder."""
        answers: list[Prediction] = []
        for start in range(0, len(samples), _AT_ONCE):
            group = samples[start : start + _AT_ONCE]
            seen = [self._confident(sample.views) for sample in group]
            contexts = self._tuning.tuned_contexts([each.kept for each in seen])
            for sample, each, context in zip(group, seen, contexts, strict=True):
                text = self._tuning.text_under(context)
                logits = self.task.logit_scale * (text @ sample.views[0, :])
                answers.append(self._predicted(logits, Diagnostics(each.entropy, each.label)))
        return answers

    def _confident(self, views: Array) -> Confident:
        """Equation (4): the views of lowest entropy under the initial context."""
        text, scale = self._tuning.text, self.task.logit_scale
        return confident_views(views, text, scale, self.config.view_share)
