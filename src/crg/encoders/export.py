"""Export an open_clip model to a folder for ONNX Runtime, which appears complete or not at all."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import tempfile
import warnings
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from crg.atomic import file_sha256
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
_SENTENCES = (
    "a photo of a cat.",
    "it's a bad photo of the 2 large dogs!",
    "a centered satellite photo of Río de la Plata",
    "art of the " + "very " * 200 + "long name",
)


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
    torch = library("torch", "export")
    images = torch.zeros(2, 3, side, side)
    texts = encoder.tokenizer(list(_SENTENCES[:2]))
    _write_graph(encoder, "encode_image", images, folder / IMAGE)
    _write_graph(encoder, "encode_text", texts, folder / TEXT)
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

    class Half(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.model = encoder.model

        def forward(self, rows: Any) -> Any:
            return getattr(self.model, method)(rows)

    names = {"input_names": ["rows"], "output_names": ["features"]}
    axes = {"rows": {0: "batch"}, "features": {0: "batch"}}
    try:
        with warnings.catch_warnings(), _plain_attention(torch), torch.no_grad():
            warnings.simplefilter("ignore")  # tracing warns about every constant size
            # dynamo=True would need onnxscript and ten times as long for the same graph
            torch.onnx.export(
                Half().eval(), (example,), str(file), dynamo=False, dynamic_axes=axes, **names
            )
    except OSError:
        raise  # the disk is full, say: nothing to do with the model
    except Exception as error:
        raise InputError(
            f"{encoder.name} cannot be exported ({first_line(error)}): use it through open_clip."
        ) from None


@contextlib.contextmanager
def _plain_attention(torch: Any) -> Iterator[None]:
    """Without the fused attention of evaluation mode, which ONNX lacks."""
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


@contextlib.contextmanager
def _appearing(target: Path) -> Iterator[Path]:
    """A new folder that is renamed to ``target`` only if nothing fails."""
    try:
        work = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.absolute().parent))
    except OSError as error:
        raise InputError(
            f"{target} cannot be written ({error.strerror}): "
            "choose a folder that exists and is writable."
        ) from None
    try:
        (work / "new").mkdir()  # with the permissions that folders have here
        yield work / "new"
        (work / "new").rename(target)
    except OSError as error:
        raise InputError(
            f"{target} cannot be written ({error.strerror}): make room or choose another place."
        ) from None
    finally:
        shutil.rmtree(work, ignore_errors=True)
