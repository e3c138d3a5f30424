"""Write folders for ONNX Runtime: export a model of open_clip, or import a graph of one's own.

A folder appears complete or not at all.
"""

from __future__ import annotations

import contextlib
import copy
import json
import logging
import os
import re
import shutil
import tempfile
import warnings
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from crg.atomic import check_place, file_sha256
from crg.encoders.base import Vectors
from crg.encoders.onnx import (
    DESCRIPTION,
    FORMAT,
    IMAGE,
    TEST_SENTENCES,
    TEXT,
    TOKENIZER,
    VERSION,
    Graph,
    Onnx,
    TokenizerUse,
    files_beside,
)
from crg.encoders.openclip import OpenClip
from crg.extras import first_line, library
from crg.images.preprocessing import Preprocessing, reference_pixels
from crg.types import InputError, unit_rows

# Endings, runs of letters, single digits, runs of anything else but spaces. U+0345 is a mark whose
# capital is a letter: the original's pattern, which ignores case, matches it nowhere.
_WORDS = r"'s|'t|'re|'ve|'m|'ll|'d|\p{L}+|\p{N}|[^\s\p{L}\p{N}\u0345]+"
TOLERANCE = 1e-3  # of a coordinate of a unit feature
CLIP = {"mean": (0.48145466, 0.4578275, 0.40821073), "std": (0.26862954, 0.26130258, 0.27577711)}
_SENTENCES = [
    "a photo of a cat.",
    "it's a bad photo of the 2 large dogs!",
    "a centered satellite photo of Río de la Plata",
    "art of the " + "very " * 200 + "long name",
]


def export(name: str, folder: str | os.PathLike[str], int8: bool = False) -> dict[str, Any]:
    """Write the open_clip model ``name`` into a new ``folder`` and check that both agree.

    With ``int8`` the weights of the image graph then get 8 bits, for processors without a GPU.
    Returns the folder, its size in bytes and the largest differences of features.
    """
    if name.partition(":")[0] in ("mini", "onnx", "hf"):
        raise InputError(
            f"{name} is not a model of open_clip, and only those can be exported: "
            "crg encoders PATTERN lists them."
        )
    target = _new(folder)
    for module in ("onnx", "onnxruntime"):
        library(module, "export")
    encoder = OpenClip(name, device="cpu", precision="fp32")
    with _appearing(target) as partial:
        _write(encoder, partial)
        side = encoder.preprocessing.size
        pixels = np.random.default_rng(0).integers(0, 256, (3, side, side, 3), dtype=np.uint8)
        features, exported = encoder.encode_images(pixels), Onnx(partial, device="cpu")
        images = float(np.abs(features - exported.encode_images(pixels)).max())
        differences = encoder.encode_texts(_SENTENCES) - exported.encode_texts(_SENTENCES)
        texts = float(np.abs(differences).max())
        if not max(images, texts) <= TOLERANCE:  # NaN fails too
            raise InputError(
                f"The exported features of {name} differ by {max(images, texts):.1e}, more than "
                f"{TOLERANCE:.0e}, and nothing was written: use the model through open_clip."
            )
        if int8:
            quantised = _in_eight_bits(name, partial)
            images = float(np.abs(features - quantised.encode_images(pixels)).max())
    facts = {"folder": str(target), "name": f"onnx:{target}", "image_difference": images}
    facts["size"] = sum(file.stat().st_size for file in target.iterdir())
    return {**facts, "text_difference": texts}


def _new(folder: str | os.PathLike[str]) -> Path:
    target = Path(folder)
    if target.exists():
        raise InputError(f"{target} exists already: choose another name or remove it.")
    return target


def _in_eight_bits(name: str, folder: Path) -> Onnx:
    """Quantise the weights of the image graph; the features of float32 stay its reference."""
    quantise = library("onnxruntime.quantization", "export")
    file, log = folder / IMAGE, logging.getLogger()
    level = log.level
    log.setLevel(logging.ERROR)  # it warns in the root logger
    try:  # unsigned, because products of signed weights overflow on some processors
        quantise.quantize_dynamic(
            file, file, ["MatMul", "Gemm"], per_channel=True,  # convolutions would be slower
            weight_type=quantise.QuantType.QUInt8,
        )  # fmt: skip
    finally:
        log.setLevel(level)
    _describe(folder, {})
    try:
        return Onnx(folder, device="cpu")
    except InputError as error:
        raise InputError(
            f"{name} does not work in 8 bits ({first_line(error)}): export it without --int8."
        ) from None


def import_graph(
    graph: str | os.PathLike[str],
    folder: str | os.PathLike[str],
    *,
    size: int | None = None,
    logit_scale: float = 100.0,
    output: str | None = None,
    **form: Any,
) -> dict[str, Any]:
    """Make a folder of an image graph, from normalised pixels (B, 3, S, S) to features (B, D).

    ``size`` is S, where the graph leaves it open; ``output`` names the features, where it has
    several outputs. ``form`` is the rest of the preprocessing, CLIP's by default.
    Returns what the graph was found to be.
    """
    target, source = _new(folder), Path(graph)
    if not source.is_file():
        raise InputError(f"There is no file {source}: give an ONNX graph.")
    runtime = library("onnxruntime", "onnx")
    with _appearing(target) as partial, _known_as(source, partial / IMAGE):
        shutil.copyfile(source, partial / IMAGE)
        for file in filter(Path.is_file, map(source.parent.joinpath, files_beside(source))):
            if file.name in (IMAGE, DESCRIPTION):
                raise InputError(f"{source} keeps weights in {file.name}: give them another name.")
            shutil.copyfile(file, partial / file.name)
        found = Graph(runtime, partial / IMAGE, ["CPUExecutionProvider"], output=output)
        side = _side_of(found, size)
        how = msgspec.convert({"size": side, **CLIP, **form}, Preprocessing)
        rows = how.normalised(reference_pixels(side))
        features = _features(found, rows, output)
        if not np.array_equal(features, _features(found, rows, found.output), equal_nan=True):
            raise InputError(f"{source} gives other features each time: export it for inference.")
        about = {
            "model": source.name,
            "width": features.shape[1],
            "logit_scale": logit_scale,
            "preprocessing": asdict(how),
            "output": found.output,
            "batch": found.batch,
            "reference": {"images": np.asarray(unit_rows(features, "features")).tolist()},
        }
        _describe(partial, {key: value for key, value in about.items() if value is not None})
        Onnx(partial, device="cpu")  # checks the rest
    facts = {key: about[key] for key in ("width", "output", "batch")}
    return {"folder": str(target), "name": f"onnx:{target}", **facts, "int8": found.eight_bit}


@contextlib.contextmanager
def _known_as(source: Path, copy: Path) -> Iterator[None]:
    """Have refusals name the file that the user knows, or the option that is wrong."""
    try:
        yield
    except msgspec.ValidationError as error:
        raise InputError(f"The preprocessing is wrong ({error}): correct that option.") from None
    except InputError as error:
        raise InputError(str(error).replace(str(copy), str(source))) from None


def _side_of(graph: Graph, size: int | None) -> int:
    """S of a graph that takes images; a graph of another form is refused."""
    inputs = ", ".join(f"{each.name} {each.shape} {each.type}" for each in graph.inputs)
    shape = graph.inputs[0].shape if len(graph.inputs) == 1 else []
    if len(shape) != 4 or "float" not in graph.inputs[0].type:
        raise InputError(
            f"{graph.file} takes {inputs or 'no input'}: give the image encoder alone, whose one "
            "input is pixels (B, 3, S, S) of type float."
        )
    if shape[1] != 3 and isinstance(shape[1], int):
        last = " with the channels last" if shape[3] == 3 else ""
        raise InputError(f"{graph.file} takes {inputs}{last}: give a graph for (B, 3, S, S).")
    sides = {each for each in (*shape[2:], size) if isinstance(each, int)}
    if len(sides) != 1:
        what = f"not --size {size}" if sides else "images of any size"
        raise InputError(f"{graph.file} takes {inputs}, {what}: give its size with --size.")
    return sides.pop()


def _features(graph: Graph, rows: Any, output: str | None) -> Vectors:
    """Features (2, D) of two images, from the output given or else the only one."""
    if output is None and len(graph.outputs) > 1:
        raise InputError(
            f"{graph.file} has the outputs {', '.join(graph.outputs)}: choose one with --output."
        )
    made = np.concatenate([graph(row[None]) for row in rows])
    if made.ndim != 2:
        raise InputError(
            f"{graph.file} has no output of features (B, D), for {graph.output} is "
            f"{list(made.shape)}: export its projected, pooled features."
        )
    return made


def _describe(folder: Path, about: dict[str, Any]) -> None:
    """Write ``encoder.json``, or update it after its image graph was changed."""
    file = folder / DESCRIPTION
    known = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    others = sorted(each for each in folder.iterdir() if each.name != DESCRIPTION)
    known |= {"format": FORMAT, "version": VERSION, **about}
    known["files"] = {each.name: file_sha256(each) for each in others}
    file.write_text(json.dumps(known, indent=2), encoding="utf-8")


def _write(encoder: OpenClip, folder: Path) -> None:
    tokenizer = write_tokenizer(encoder.tokenizer, folder)
    side = encoder.preprocessing.size
    images = library("torch", "export").zeros(2, 3, side, side)
    _write_graph(encoder, "encode_image", images, folder / IMAGE)
    _write_graph(encoder, "encode_text", encoder.tokenizer(_SENTENCES[:2]), folder / TEXT)
    about = {
        "model": encoder.name,
        "width": encoder.width,
        "logit_scale": encoder.logit_scale,
        "context_length": int(encoder.tokenizer.context_length),
        "preprocessing": asdict(encoder.preprocessing),
        "tokenizer": msgspec.to_builtins(tokenizer),
        "reference": {
            "images": encoder.encode_images(reference_pixels(side)).round(6).tolist(),
            "texts": encoder.encode_texts(TEST_SENTENCES).round(6).tolist(),
        },
    }
    _describe(folder, about)


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
