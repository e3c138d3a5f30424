"""Export an open_clip model to a folder for ONNX Runtime, which appears complete or not at all."""

from __future__ import annotations

import contextlib
import copy
import json
import os
import re
import tempfile
import warnings
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from crg.atomic import check_place, file_sha256
from crg.encoders.onnx import (
    DESCRIPTION,
    FORMAT,
    IMAGE,
    TEST_SENTENCES,
    TEXT,
    TOKENIZER,
    VERSION,
    Onnx,
    TokenizerUse,
    reference_pixels,
)
from crg.encoders.openclip import OpenClip
from crg.extras import first_line, library
from crg.types import InputError

# Endings, runs of letters, single digits, runs of anything else but spaces. U+0345 is a mark whose
# capital is a letter: the original's pattern, which ignores case, matches it nowhere.
_WORDS = r"'s|'t|'re|'ve|'m|'ll|'d|\p{L}+|\p{N}|[^\s\p{L}\p{N}\u0345]+"
TOLERANCE = 1e-3  # of a coordinate of a unit feature
_SENTENCES = [
    "a photo of a cat.",
    "it's a bad photo of the 2 large dogs!",
    "a centered satellite photo of Río de la Plata",
    "art of the " + "very " * 200 + "long name",
]


@dataclass(frozen=True)
class Exported:
    """The folder written, and the largest differences from the original features."""

    folder: Path
    name: str  # as in --model
    image_difference: float
    text_difference: float
    size: int  # bytes


def export(name: str, folder: str | os.PathLike[str]) -> Exported:
    """Write the open_clip model ``name`` into a new ``folder`` and check that both agree."""
    target = Path(folder)
    if target.exists():
        raise InputError(f"{target} exists already: choose another name or remove it.")
    for module in ("onnx", "onnxruntime"):
        library(module, "export")
    encoder = OpenClip(name, device="cpu", precision="fp32")
    with _appearing(target) as partial:
        _write(encoder, partial)
        exported, side = Onnx(partial, device="cpu"), encoder.preprocessing.size
        pixels = np.random.default_rng(0).integers(0, 256, (3, side, side, 3), dtype=np.uint8)
        differences = (
            encoder.encode_images(pixels) - exported.encode_images(pixels),
            encoder.encode_texts(_SENTENCES) - exported.encode_texts(_SENTENCES),
        )
        images, texts = (float(np.abs(each).max()) for each in differences)
        if not max(images, texts) <= TOLERANCE:  # NaN fails too
            raise InputError(
                f"The exported features of {name} differ by {max(images, texts):.1e}, more than "
                f"{TOLERANCE:.0e}, and nothing was written: use the model through open_clip."
            )
    size = sum(file.stat().st_size for file in target.iterdir())
    return Exported(target, f"onnx:{target}", images, texts, size)


def _write(encoder: OpenClip, folder: Path) -> None:
    tokenizer = write_tokenizer(encoder.tokenizer, folder)
    side = encoder.preprocessing.size
    images = library("torch", "export").zeros(2, 3, side, side)
    _write_graph(encoder, "encode_image", images, folder / IMAGE)
    _write_graph(encoder, "encode_text", encoder.tokenizer(_SENTENCES[:2]), folder / TEXT)
    about = {
        "format": FORMAT,
        "version": VERSION,
        "model": encoder.name,
        "width": encoder.width,
        "logit_scale": encoder.logit_scale,
        "logit_bias": encoder.logit_bias,
        "context_length": int(encoder.tokenizer.context_length),
        "preprocessing": asdict(encoder.preprocessing),
        "tokenizer": msgspec.to_builtins(tokenizer),
        "reference": {
            "images": encoder.encode_images(reference_pixels(side)).round(6).tolist(),
            "texts": encoder.encode_texts(TEST_SENTENCES).round(6).tolist(),
        },
        "files": {file.name: file_sha256(file) for file in sorted(folder.iterdir())},
    }
    (folder / DESCRIPTION).write_text(json.dumps(about, indent=2), encoding="utf-8")


def write_tokenizer(tokenizer: Any, folder: Path) -> TokenizerUse:
    """Write an open_clip tokenizer as ``tokenizer.json``; returns how it is used."""
    clean = tokenizer.clean_fn.__name__.removeprefix("_clean_")
    if hasattr(tokenizer, "bpe_ranks") and tokenizer.reduction_fn is None:
        _clip_tokenizer(tokenizer).save(str(folder / TOKENIZER))
        return TokenizerUse(clean)
    plain = type(tokenizer).__name__ == "HFTokenizer" and not tokenizer.tokenizer_mode
    fast = getattr(tokenizer.tokenizer, "backend_tokenizer", None) if plain else None
    if fast is None:
        raise InputError(
            f"A model with the tokenizer {type(tokenizer).__name__} cannot be exported: "
            "use it through open_clip."
        )
    fast.save(str(folder / TOKENIZER))
    inner = tokenizer.tokenizer
    stripped = inner.sep_token_id if tokenizer.strip_sep_token else None
    return TokenizerUse(clean, inner.pad_token_id, inner.pad_token, stripped)


def _clip_tokenizer(tokenizer: Any) -> Any:
    """CLIP's byte pairs as a Tokenizer of Hugging Face's tokenizers."""
    made = library("tokenizers", "export")
    split, processors = made.pre_tokenizers, made.processors
    specials = [tokenizer.decoder[number] for number in tokenizer.all_special_ids]
    merges, end = list(tokenizer.bpe_ranks), "</w>"  # closes the last piece of a word
    inner = made.Tokenizer(made.models.BPE(tokenizer.encoder, merges, end_of_word_suffix=end))
    pattern = made.Regex("|".join(["(?i)" + "|".join(map(re.escape, specials)), _WORDS]))
    inner.pre_tokenizer = split.Sequence(
        [
            split.Split(pattern, "removed", invert=True),
            split.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    inner.add_special_tokens([made.AddedToken(word, normalized=False) for word in specials])
    start, stop = ((word, tokenizer.encoder[word]) for word in specials[:2])
    inner.post_processor = processors.TemplateProcessing(
        f"{start[0]} $A {stop[0]}", None, [start, stop]
    )
    return inner


def _write_graph(encoder: OpenClip, method: str, example: Any, file: Path) -> None:
    """Trace one half of the model; the first axis stays open for batches of any size."""
    torch = library("torch", "export")
    half = copy.copy(encoder.model)
    half.forward = getattr(encoder.model, method)
    attention = torch.backends.mha  # ONNX lacks the fused one of evaluation mode
    names = {"input_names": ["rows"], "output_names": ["features"]}
    axes = {"rows": {0: "batch"}, "features": {0: "batch"}}
    try:
        with warnings.catch_warnings(), contextlib.ExitStack() as stack, torch.no_grad():
            warnings.simplefilter("ignore")  # tracing warns about every constant size
            stack.callback(attention.set_fastpath_enabled, attention.get_fastpath_enabled())
            attention.set_fastpath_enabled(False)
            # dynamo=True would need onnxscript and ten times as long for the same graph
            torch.onnx.export(half, (example,), file, dynamo=False, dynamic_axes=axes, **names)
    except OSError:
        raise  # the disk is full, say: nothing to do with the model
    except Exception as error:
        raise InputError(
            f"{encoder.name} cannot be exported ({first_line(error)}): use it through open_clip."
        ) from None


@contextlib.contextmanager
def _appearing(target: Path) -> Iterator[Path]:
    """A new folder that is renamed to ``target`` only if nothing fails."""
    check_place(target)
    above = target.absolute().parent
    try:
        with tempfile.TemporaryDirectory(prefix=f".{target.name}.", dir=above) as work:
            partial = Path(work, "new")
            partial.mkdir()  # with the permissions that folders have here
            yield partial
            partial.rename(target)
    except OSError as error:
        raise InputError(
            f"{target} cannot be written ({error.strerror}): make room or choose another place."
        ) from None
