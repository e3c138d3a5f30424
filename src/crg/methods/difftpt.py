"""DiffTPT: prompt tuning on views that a diffusion model made (Feng et al., ICCV 2023).

Crops of an image all look alike. Here variations of it that a diffusion model generated join
them: those that are most like the original are mixed with the ordinary views, and on the
confident ones of the mixture the prompt is tuned as in TPT. The original view is then
predicted with the tuned prompt, and the context goes back to where it started.

| equation | function | symbols |
| --- | --- | --- |
| cosine filter: the fraction rho_C of generated views nearest to f_0 | _mixed | f_0 original view |
| confident views: the fraction rho_H of the mixture of lowest entropy | ops.confident_views | |
| L = H(p~), p~ mean over these views, AdamW | parts.prompting | c context, t(c) text features |
| logits = s f_0 . t(c') | step | c' tuned context, s logit scale |

The generated views are the last ones of an image; how many there are comes with the task.
Where an image has no generated views this is TPT with the settings below.

Differs from the paper: it filters ordinary views by entropy and generated ones by entropy and
cosine, each kind by itself; here the generated ones that the cosine leaves compete with the
ordinary ones in one filter by entropy. The authors' code differs again: it takes the cosine
of logits rather than of image features, and applies it to ordinary views too. A fraction keeps
at least one view. All is in full precision.
"""

from __future__ import annotations

from dataclasses import dataclass

from crg.methods.registry import Method, option, register
from crg.ops import confident_views, count_kept
from crg.parts.prompting import PromptTuning
from crg.resources import GENERATED, TEXT_ENCODER
from crg.types import Array, Diagnostics, Prediction, Sample, namespace


@register
class DiffTPT(Method):
    """Tunes one prompt per image on ordinary and generated views; needs torch."""

    name = "difftpt"
    forgets = True
    paper = (
        "Feng et al., Diverse Data Augmentation with Diffusions for Effective Test-time Prompt "
        "Tuning, ICCV 2023"
    )
    needs = (TEXT_ENCODER, GENERATED)
    _not_saved = Method._not_saved | {"_tuning"}

    @dataclass(frozen=True)
    class Config:
        """The constants of the authors' code."""

        context: str = option("a photo of a", "words that the context vectors start from")
        similar_share: float = option(0.8, "rho_C, of generated views", above=0, at_most=1)
        view_share: float = option(0.3, "rho_H, of the mixed views", above=0, at_most=1)
        lr: float = option(5e-3, "size of an AdamW step", at_least=0, at_most=1)
        steps: int = option(4, "AdamW steps per image", at_least=0, at_most=1000)
        weight_decay: float = option(0.01, "AdamW's weight decay", at_least=0, at_most=1)
        chunk: int = option(256, "classes at a time, which bounds memory; 0 for all", at_least=0)

    def reset(self) -> None:
        """There is nothing to forget, only text features that all images start from."""
        self._tuning = PromptTuning(self.task, self.config)

    _derive = reset  # class names have changed

    def step(self, sample: Sample) -> Prediction:
        """Filter, mix, tune the prompt on the confident views, predict the original with it."""
        mixed, scale = self._mixed(sample.views), self.task.logit_scale
        seen = confident_views(mixed, self._tuning.text, scale, self.config.view_share)
        [context] = self._tuning.tuned_contexts([seen.kept])
        logits = scale * (self._tuning.text_under(context) @ sample.views[0, :])
        return self._predicted(logits, Diagnostics(seen.entropy, seen.label))

    def _mixed(self, views: Array) -> Array:
        """The ordinary views, and the rho_C of the generated ones with the highest f . f_0."""
        n_views = views.shape[0]
        n_generated = min(self.task.resources[GENERATED], n_views - 1)  # row 0 never is one
        if n_generated == 0:
            return views
        xp, n_ordinary = namespace(views), n_views - n_generated
        generated = views[n_ordinary:, :]
        nearest = xp.argsort(-(generated @ views[0, :]), stable=True)
        kept = xp.sort(nearest[: count_kept(n_generated, self.config.similar_share)])
        return xp.concat([views[:n_ordinary, :], xp.take(generated, kept, axis=0)], axis=0)
