"""Models of open_clip: published weights or a checkpoint file, on any device of torch."""

from __future__ import annotations

import contextlib
import copy
import logging
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from crg.encoders.torch_encoder import TorchEncoder
from crg.encoders.weights import fetch_weights, is_torchscript, load_weights, parse_name
from crg.extras import first_line, install, library
from crg.images.preprocessing import Interpolation, Preprocessing
from crg.types import InputError

_FOLDERS = ("local-dir:", "hf-hub:")  # open_clip's own names: configuration and weights together
_PREPARED = ("mean", "std", "interpolation", "resize_mode")  # the architecture has the size
_PLACEHOLDER = "a"  # one token in every vocabulary
_CACHED_LISTS = 64  # of class names whose tokens are cached
_KINDS = ("_modules", "_parameters", "_buffers")  # where torch keeps the parts of a module


class OpenClip(TorchEncoder):
    """A model of open_clip as an Encoder."""

    def __init__(
        self, name: str, *, device: str | None = None, precision: str | None = None
    ) -> None:
        library("open_clip", "openclip")
        super().__init__(device, precision)
        self.name = name
        with _quietly(name):
            if name.startswith(_FOLDERS):
                known_as, quick_gelu = name, False
                model = _from_folder(name)
            else:
                known_as, weights = parse_name(name)
                model, quick_gelu = _from_weights(known_as, weights)
            self.tokenizer = _tokenizer(known_as)
        configuration = dict(library("open_clip", "openclip").get_model_config(known_as))
        configuration["quick_gelu"] = quick_gelu or bool(configuration.get("quick_gelu"))
        self.configuration = configuration
        self.preprocessing = _preprocessing(known_as, model.visual.preprocess_cfg)
        self.width = int(configuration["embed_dim"])
        self.use(model, {"model": configuration, "pictures": asdict(self.preprocessing)})

    def promptable(self) -> OpenClipPrompts:
        """The text encoder in fp32, which takes context vectors in place of words."""
        return OpenClipPrompts(self.name, self.model, self.tokenizer)

    def image_rows(self, images: Any) -> Any:
        """Features (B, D) of normalised images (B, 3, S, S)."""
        return self.model.encode_image(images)

    def text_rows(self, texts: list[str]) -> Any:
        """Features (n, D) of texts."""
        return self.model.encode_text(self.tokenizer(texts).to(self.device))


def _from_weights(name: str, weights: str | Path) -> tuple[Any, bool]:
    """The model with published weights or those of a file, and their activation."""
    if isinstance(weights, Path):
        file, habits = weights, _habits(name, weights)
    else:
        file = fetch_weights(name, weights)
        habits = library("open_clip", "openclip").get_pretrained_cfg(name, weights)
    quick_gelu = bool(habits.get("quick_gelu"))
    prepared = {key: habits[key] for key in _PREPARED if key in habits}
    model = library("open_clip", "openclip").create_model(
        name, pretrained_text=False, force_quick_gelu=quick_gelu, force_preprocess_cfg=prepared
    )
    load_weights(model, file)
    return model, quick_gelu


def _from_folder(name: str) -> Any:
    """A model whose configuration and weights are in one folder."""
    try:
        options = {"pretrained_text": False, "require_pretrained": True}
        return library("open_clip", "openclip").create_model(name, **options)
    except ModuleNotFoundError:
        raise
    except Exception as error:
        raise InputError(
            f"The model {name} cannot be loaded ({first_line(error)}): "
            f"{name.split(':', 1)[1]} must hold open_clip_config.json and the weights."
        ) from None


def _habits(model: str, file: Path) -> dict[str, Any]:
    """The settings that all published weights of a model share; a file does not state its own.

    OpenAI's own archives are the exception: they always use the quick GELU.
    """
    open_clip = library("open_clip", "openclip")
    tags = open_clip.list_pretrained_tags_by_model(model)
    published = [open_clip.get_pretrained_cfg(model, tag) for tag in tags]
    first = published[0] if published else {}
    agreed = {key: first[key] for key in first if all(p.get(key) == first[key] for p in published)}
    return agreed | ({"quick_gelu": True} if is_torchscript(file) else {})


def _tokenizer(name: str) -> Any:
    try:
        return library("open_clip", "openclip").get_tokenizer(name)
    except ModuleNotFoundError:
        raise
    except Exception as error:
        raise InputError(
            f"The tokenizer of {name} cannot be loaded ({first_line(error)}): "
            "connect to the internet once, or put it into a folder with the model "
            "and use local-dir:FOLDER."
        ) from None


def _preprocessing(name: str, given: dict[str, Any]) -> Preprocessing:
    height, width = np.broadcast_to(given["size"], 2).tolist()
    if height != width or given["resize_mode"] not in ("shortest", "squash"):
        raise InputError(
            f"{name} wants images of {height} x {width} pixels fitted by "
            f"{given['resize_mode']!r}, which crg cannot make: choose another model."
        )
    mean, std = (
        tuple(np.broadcast_to(np.asarray(given[key], np.float64), 3).tolist())
        for key in ("mean", "std")
    )
    how: Interpolation = "bilinear" if given["interpolation"] == "bilinear" else "bicubic"
    return Preprocessing(height, mean, std, how, given["resize_mode"])


@contextlib.contextmanager
def _quietly(name: str) -> Iterator[None]:
    """Keep open_clip from writing to the screen and from setting up the log of the program.

    A tokenizer of the model ``name`` that needs transformers is reported with the extra.
    """
    root, silent = logging.getLogger(), logging.NullHandler()
    root.addHandler(silent)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except (ModuleNotFoundError, RuntimeError) as error:
        if "transformers" not in str(error):
            raise
        raise InputError(
            f"{name} reads text with a tokenizer from Hugging Face ({first_line(error)}): "
            f"{install('huggingface')}."
        ) from None
    finally:
        root.removeHandler(silent)


class OpenClipPrompts:
    """A PromptableTextEncoder; its weights are frozen and stay where the model has them.

    The model's own code runs on a sentence of M placeholder words and the ending; only the
    embeddings of the placeholders are replaced by the context. Positions, masks, pooling and
    projection are therefore those of the model, whatever its text tower is made of. Parts are
    exchanged in a copy that shares all weights, so that several threads may use the original.
    """

    def __init__(self, name: str, model: Any, tokenizer: Any) -> None:
        self.name, self.tokenizer = name, tokenizer
        self.model = copy.copy(model)  # without the image tower; the text tower shares its weights
        self.model._modules = {n: part for n, part in model._modules.items() if n != "visual"}
        self.model.eval().requires_grad_(False)
        self._path = _embedding_path(name, self.model)
        self._embedding = self.model.get_submodule(self._path)
        self._start = _tokens_before_words(tokenizer)
        self._ids: dict[tuple[int, tuple[str, ...]], Any] = {}

    def context_of(self, words: str) -> Any:
        """The embeddings (M, W) of some words, one row per token."""
        torch = library("torch", "openclip")
        table = self._embedding.weight
        ids = torch.tensor(self._tokens(words), dtype=torch.long, device=table.device)
        return table.detach()[ids].clone()

    def encode(self, context: Any, endings: Sequence[str]) -> Any:
        """Unit features (K, D) of a context (M, W) followed by each ending.

        Endings that are too long are cut as the tokenizer cuts any sentence.
        """
        ids = self._sentences(len(context), tuple(endings))
        rows = context.to(self._embedding.weight).expand(len(ids), *context.shape)
        model, ids = shortened(self.model, self._path, ids)
        torch, start, end = library("torch", "openclip"), self._start, self._start + rows.shape[1]

        def embed(ids: Any) -> Any:
            words = self._embedding(ids)
            return torch.cat([words[:, :start], rows.to(words), words[:, end:]], dim=1)

        spliced = with_part(model, self._path, embed)
        return torch.nn.functional.normalize(spliced.encode_text(ids), dim=-1)

    def _sentences(self, n_vectors: int, endings: tuple[str, ...]) -> Any:
        """Token ids (K, L) of M placeholders and the ending."""
        key = (n_vectors, endings)
        if key in self._ids:
            return self._ids[key]
        placeholders = " ".join([_PLACEHOLDER] * n_vectors)
        ids = self.tokenizer([f"{placeholders} {ending}" for ending in endings])
        most = ids.shape[1] - self._start - 2  # one for a class name and one for the end
        if n_vectors > most:
            raise InputError(
                f"A context of {n_vectors} vectors leaves no room for a class name: "
                f"{self.name} reads {ids.shape[1]} tokens, so give it at most {most} vectors."
            )
        there = ids[:, self._start : self._start + n_vectors]
        if bool((there != self._tokens(_PLACEHOLDER)[0]).any()):
            raise InputError(
                f"The tokenizer of {self.name} does not keep words in their places: "
                "tune prompts in another model."
            )
        if len(self._ids) >= _CACHED_LISTS:
            self._ids.clear()
        self._ids[key] = ids.to(self._embedding.weight.device)
        return self._ids[key]

    def _tokens(self, words: str) -> list[int]:
        """Token ids of words without what marks a beginning and an end."""
        if hasattr(self.tokenizer, "bpe_ranks"):
            return list(self.tokenizer.encode(words))
        clean = self.tokenizer.clean_fn(words)
        return list(self.tokenizer.tokenizer(clean, add_special_tokens=False).input_ids)


def _embedding_path(name: str, model: Any) -> str:
    """Where the table of token embeddings is in the model."""
    parts = dict(model.named_modules())
    inner = parts.get("text.transformer")
    ask = getattr(inner, "get_input_embeddings", None)  # of Hugging Face's text towers
    tables = [ask()] if ask else []
    for path, part in parts.items():
        if path in ("token_embedding", "text.token_embedding") or part in tables:
            return str(path)
    raise InputError(
        f"The text encoder of {name} takes no embeddings: "
        "encode with mini or another model of open_clip."
    )


def _tokens_before_words(tokenizer: Any) -> int:
    """How many tokens stand before the first word: what a text and the empty one share."""
    with_word, without = tokenizer([_PLACEHOLDER, ""]).tolist()
    return next(i for i, (a, b) in enumerate(zip(with_word, without, strict=True)) if a != b)


def with_part(module: Any, path: str, part: Any) -> Any:
    """The module with ``part``, any callable or tensor, in place of what is at ``path``."""
    first, _, rest = path.partition(".")
    clone = copy.copy(module)
    for kind in _KINDS:
        clone.__dict__[kind] = dict(module.__dict__[kind])
    if rest:
        clone._modules[first] = with_part(module._modules[first], rest, part)
        return clone
    for kind in _KINDS:
        clone.__dict__[kind].pop(first, None)
    clone.__dict__[first] = part
    return clone


def shortened(model: Any, path: str, ids: Any) -> tuple[Any, Any]:
    """The model and token ids (K, L) without the places behind the last one that is read.

    In a causal transformer that reads the end token, what follows it has no influence: class
    names need some ten places of CLIP's 77. Other text towers are left as they are.
    """
    before, _, _ = path.rpartition(".")
    tower = model.get_submodule(before)
    length = _places_read(tower, ids)
    if length >= ids.shape[1]:
        return model, ids
    prefix = f"{before}." if before else ""
    places = tower.positional_embedding[:length]
    model = with_part(model, f"{prefix}positional_embedding", places)
    model = with_part(model, f"{prefix}attn_mask", tower.attn_mask[:length, :length])
    return model, ids[:, :length]


def _places_read(tower: Any, ids: Any) -> int:
    """How many places from the first on have influence on the features."""
    pool = getattr(tower, "text_pool_type", getattr(tower, "pool_type", ""))
    causal = getattr(tower, "attn_mask", None) is not None
    if not causal or getattr(tower, "cls_emb", None) is not None or pool not in ("argmax", "eos"):
        return int(ids.shape[1])
    end = getattr(tower, "text_eos_id", getattr(tower, "eos_id", None))
    found = ids if pool == "argmax" else (ids == end).int()
    return int(found.argmax(dim=-1).max()) + 1
