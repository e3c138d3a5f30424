"""Models of Hugging Face's transformers: CLIP and SigLIP, by name or from a folder.

Only the classes of transformers itself are used, never code that comes with a model, and of
pickled weights only tensors are read.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from crg.encoders.torch_encoder import TorchEncoder, check_reachable
from crg.extras import first_line, library
from crg.images.preprocessing import Interpolation, Preprocessing
from crg.types import InputError

_CLASSES = {"clip": "CLIPModel", "siglip": "SiglipModel"}  # SigLIP 2 of fixed size is a siglip
_NAME = re.compile(r"\w[\w.-]*/\w[\w.-]*")
_WEIGHTS = ("*.safetensors", "*.bin")
_OTHERS = ("*.json", "*.txt", "*.model")
_RESAMPLING: dict[int, Interpolation] = {2: "bilinear", 3: "bicubic"}  # Pillow's numbers


class HuggingFace(TorchEncoder):
    """A model of transformers as an Encoder."""

    def __init__(
        self, name: str, *, device: str | None = None, precision: str | None = None
    ) -> None:
        _check_name(name)
        library("transformers", "huggingface")
        super().__init__(device, precision)
        self.name = f"hf:{name}"
        folder = _folder(name)
        with _quietly():
            kind = str(_read_json(folder, "config.json").get("model_type"))
            model, self.tokenizer = _loaded(folder, kind)
        vision = model.config.vision_config
        self.preprocessing = _preprocessing(folder, int(vision.image_size))
        self._pads_with_mask = kind == "clip"
        self.context_length = int(model.config.text_config.max_position_embeddings)
        self.width = int(getattr(model.config, "projection_dim", None) or vision.hidden_size)
        halves = [model.config.text_config, vision]
        words = json.dumps(self.tokenizer.get_vocab(), sort_keys=True)
        facts = {
            "model": kind,
            "halves": [[half.hidden_act, half.num_attention_heads] for half in halves],
            "images": asdict(self.preprocessing),
            "words": hashlib.sha256(words.encode()).hexdigest(),
        }
        self.use(model, facts)

    def image_rows(self, images: Any) -> Any:
        """Features (B, D) of normalised images (B, 3, S, S)."""
        return _pooled(self.model.get_image_features(pixel_values=images))

    def text_rows(self, texts: list[str]) -> Any:
        """Features (n, D) of texts; SigLIP reads the padding, too, as it was trained."""
        options = {"padding": "max_length", "truncation": True, "max_length": self.context_length}
        tokens = self.tokenizer(texts, return_tensors="pt", **options).to(self.device)
        mask = {"attention_mask": tokens["attention_mask"]} if self._pads_with_mask else {}
        return _pooled(self.model.get_text_features(input_ids=tokens["input_ids"], **mask))


def _pooled(features: Any) -> Any:
    """The features themselves; from version 5 on they come with all that led to them."""
    return getattr(features, "pooler_output", features)


def _check_name(name: str) -> None:
    """Refuse, before any library is imported, what is neither a folder nor a name of the hub."""
    if not (Path(name).expanduser().is_dir() or _NAME.fullmatch(name)):
        raise InputError(
            f"There is no folder {name}: give hf:FOLDER, or hf:USER/MODEL for a model of "
            "huggingface.co."
        )


def _folder(name: str) -> Path:
    """The folder with the files of a model, downloaded if it must be."""
    folder = Path(name).expanduser()
    if folder.is_dir():
        return folder
    hub = library("huggingface_hub", "huggingface")
    try:
        with contextlib.suppress(Exception):  # not there yet
            found = Path(hub.snapshot_download(name, local_files_only=True))
            if (found / "config.json").is_file() and any(map(any, map(found.glob, _WEIGHTS))):
                return found
        check_reachable(hub.constants.ENDPOINT)
        for weights in _WEIGHTS:
            found = Path(hub.snapshot_download(name, allow_patterns=[*_OTHERS, weights]))
            if any(found.glob(weights)):
                return found
        raise FileNotFoundError("it has no weights")
    except Exception as error:  # network, disk or hub: each library has its own kinds
        raise InputError(
            f"The model {name} is not on this machine and cannot be fetched "
            f"({first_line(error)}): check the name, or put the files of "
            f"https://huggingface.co/{name} into a folder and use hf:FOLDER."
        ) from None


def _loaded(folder: Path, kind: str) -> tuple[Any, Any]:
    """The model in fp32 and its tokenizer; a model whose weights are not all there is refused."""
    if kind not in _CLASSES:
        raise InputError(
            f"{folder} holds a model of type {kind!r:.40}: give one of the types "
            f"{' and '.join(_CLASSES)}."
        )
    module = library(f"transformers.models.{kind}.modeling_{kind}", "huggingface")
    tokenizers = library("transformers.models.auto.tokenization_auto", "huggingface")
    options = {"local_files_only": True, "trust_remote_code": False}
    try:
        model, loaded = getattr(module, _CLASSES[kind]).from_pretrained(
            folder, local_files_only=True, output_loading_info=True
        )
        tokenizer = tokenizers.AutoTokenizer.from_pretrained(folder, **options)
    except Exception as error:  # damaged configurations and weights raise nearly anything
        raise InputError(
            f"The model in {folder} cannot be loaded ({first_line(error)}): "
            "put all files of the model there."
        ) from None
    absent = [*loaded["missing_keys"], *loaded["mismatched_keys"]]
    if absent:
        raise InputError(
            f"The weights in {folder} are not those of its config.json (see {absent[0]!s:.80}): "
            "put the complete model there."
        )
    return model.float(), tokenizer


def _read_json(folder: Path, *names: str) -> dict[str, Any]:
    """The first of these files that there is."""
    for file in (folder / name for name in names):
        if file.is_file():
            try:
                return dict(json.loads(file.read_bytes()))
            except (OSError, ValueError, TypeError, RecursionError) as error:
                raise InputError(
                    f"{file} is damaged ({first_line(error)}): download it again."
                ) from None
    raise InputError(f"{folder} has no {names[0]}: put all files of the model there.")


def _preprocessing(folder: Path, side: int) -> Preprocessing:
    """The preprocessing of the folder; refuse one that crg cannot do in the same way."""
    given = _read_json(folder, "preprocessor_config.json", "processor_config.json")
    given = given.get("image_processor", given)
    try:
        steps = [given.get(f"do_{step}", True) for step in ("resize", "rescale", "normalize")]
        scale = given.get("rescale_factor", 1 / 255)
        squash = _is_squashed(given, side)
        if not all(steps) or abs(scale * 255 - 1) > 1e-6 or squash is None:
            raise ValueError(f"the model sees {side} x {side} pixels")
        mean, std = (tuple(map(float, given[f"image_{key}"])) for key in ("mean", "std"))
        how = _RESAMPLING[given.get("resample", 3)]
        if not (len(mean) == len(std) == 3 and min(std) > 0):
            raise ValueError("mean and std must be three numbers each")
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError(
            f"{folder} prepares images in a way that crg cannot ({first_line(error)}): "
            "choose another model."
        ) from None
    return Preprocessing(side, mean, std, how, "squash" if squash else "shortest")


def _is_squashed(given: Mapping[str, Any], side: int) -> bool | None:
    """Whether images lose their aspect; None where they do not become squares of ``side``."""
    both, shortest = {"height": side, "width": side}, (side, {"shortest_edge": side})
    size, crop = given.get("size"), given.get("crop_size")
    if not given.get("do_center_crop", crop is not None):
        return True if size == both else None
    return size == both if size in (both, *shortest) and crop in (both, *shortest) else None


@contextlib.contextmanager
def _quietly() -> Iterator[None]:
    """Keep transformers from writing to the screen."""
    log = library("transformers.utils.logging", "huggingface")
    level, bars = log.get_verbosity(), log.is_progress_bar_enabled()
    log.set_verbosity_error()
    log.disable_progress_bar()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        log.set_verbosity(level)
        if bars:
            log.enable_progress_bar()
