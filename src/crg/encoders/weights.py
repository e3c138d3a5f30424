"""Weights of open_clip models (MODEL, MODEL:TAG, MODEL:FILE): finding, fetching, loading."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import pickle
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

from crg.encoders.base import first_line, library
from crg.encoders.torchscript import is_torchscript, read_torchscript
from crg.suggest import nearest
from crg.types import InputError

_FOLDERS = ("local-dir:", "hf-hub:")  # open_clip's own forms: configuration and weights together
_SUFFIXES = (".pt", ".pth", ".bin", ".ckpt", ".safetensors", ".npz")


@dataclass(frozen=True)
class Wanted:
    """A model with the weights for it: of exactly one kind."""

    model: str  # as open_clip calls it
    tag: str | None = None  # published weights
    file: Path | None = None  # a checkpoint on this machine

    @property
    def has_own_configuration(self) -> bool:
        """Whether open_clip finds both configuration and weights by the name alone."""
        return self.model.startswith(_FOLDERS)


def parse_name(name: str) -> Wanted:
    """What ``name`` stands for; a model, tag or file that there is not is refused."""
    if name.startswith(_FOLDERS):
        return Wanted(name)
    model, colon, rest = name.partition(":")
    model = _known_model(model)
    if not colon:
        return Wanted(model, tag=_default_tag(model))
    if library("open_clip", "openclip").pretrained.is_pretrained_cfg(model, rest):
        return Wanted(model, tag=rest.lower().replace("-", "_"))
    return Wanted(model, file=_existing_file(model, rest))


def published_tags(model: str) -> list[str]:
    """The tags of the weights that are published for a model."""
    tags: list[str] = library("open_clip", "openclip").list_pretrained_tags_by_model(model)
    return tags


def published_configuration(model: str, tag: str) -> dict[str, Any]:
    """Where published weights are and how images are prepared for them."""
    found: dict[str, Any] = library("open_clip", "openclip").get_pretrained_cfg(model, tag)
    return found


def _known_model(given: str) -> str:
    known: list[str] = library("open_clip", "openclip").list_models()
    same = {name.lower(): name for name in known}
    asked = given.replace("/", "-").lower()
    if asked in same:
        return same[asked]
    hint = nearest(asked, [*known, "mini"], "crg encoders lists them.")
    raise InputError(f"There is no model {given!r}: {hint}")


def _default_tag(model: str) -> str:
    tags = published_tags(model)
    if "openai" in tags:
        return "openai"
    if len(tags) == 1:
        return tags[0]
    if not tags:
        raise InputError(f"No weights are published for {model}: give a file with {model}:FILE.")
    raise InputError(
        f"{model} comes with different weights: choose with {model}:TAG, "
        f"where TAG is one of {', '.join(tags)}."
    )


def _existing_file(model: str, given: str) -> Path:
    path = Path(given).expanduser()
    if path.is_file():
        return path
    if path.is_dir():
        raise InputError(f"{given} is a folder: give the file of weights in it, {model}:FILE.")
    if "/" in given or "\\" in given or path.suffix.lower() in _SUFFIXES:
        raise InputError(f"There is no file {given}: put the weights of {model} there.")
    tags = published_tags(model)
    remedy = f"choose one of {', '.join(tags)}, or give a file" if tags else "give a file"
    raise InputError(f"{model} has no weights called {given!r}: {remedy}.")


_CLIP_CACHE = Path("~/.cache/clip")  # where both openai/CLIP and open_clip keep downloads


def find_weights(model: str, tag: str) -> Path | None:
    """The file of published weights if it is on this machine already."""
    about = published_configuration(model, tag)
    if "file" in about:  # a model of one's own, registered with open_clip
        return Path(about["file"])
    hub = library("huggingface_hub", "openclip")
    repository, names = _on_hub(about)
    for name in names:
        found = hub.try_to_load_from_cache(repository, name)
        if isinstance(found, str):
            return Path(found)
    if url := about.get("url"):
        file = _CLIP_CACHE.expanduser() / url.rsplit("/", 1)[-1]
        return file if file.is_file() else None
    return None


def published_at(model: str, tag: str) -> str:
    """The address of published weights, for people."""
    about = published_configuration(model, tag)
    repository, _ = _on_hub(about)
    return f"https://huggingface.co/{repository}" if repository else str(about.get("url", ""))


def fetch_weights(model: str, tag: str) -> Path:
    """The file of published weights, downloaded if it must be."""
    if found := find_weights(model, tag):
        return found
    about = published_configuration(model, tag)
    download = library("open_clip", "openclip").pretrained.download_pretrained
    reason = ""
    for address, options in _ways(about):
        try:
            check_reachable(address)  # the hub alone would go on trying for a minute
            return Path(download(about, **options))
        except Exception as error:  # network, disk or hub: each library has its own kinds
            reason = reason or first_line(error)
    raise InputError(_unreachable(model, tag, about, reason))


def load_weights(model: Any, file: Path) -> None:
    """Put the weights of ``file`` into ``model``; they must fit exactly."""
    try:
        if is_torchscript(file):
            _load_torchscript(model, file)
        else:
            factory = library("open_clip", "openclip").factory
            with tensors_only():
                factory.load_checkpoint(model, str(file), weights_only=True)
    except (KeyError, AttributeError, TypeError, IndexError, AssertionError) as error:
        raise InputError(_misfit(file, error)) from None
    except Exception as error:
        if "loading state_dict" in str(error):
            raise InputError(_misfit(file, error)) from None
        unsafe = isinstance(error, pickle.UnpicklingError)
        reason = "not a file of tensors alone" if unsafe else first_line(error)
        raise InputError(
            f"{file} cannot be read as weights ({reason}): put a complete checkpoint there."
        ) from None


@contextlib.contextmanager
def tensors_only() -> Iterator[None]:
    """Let torch unpickle nothing but tensors.

    open_clip asks for that, too, but after a TypeError it asks again without, which older
    versions of torch understand as leave to run whatever the file holds.
    """
    variable = "TORCH_FORCE_WEIGHTS_ONLY_LOAD"
    before = os.environ.get(variable)
    os.environ[variable] = "1"
    try:
        yield
    finally:
        del os.environ[variable]
        if before is not None:
            os.environ[variable] = before


def weights_fingerprint(model: Any, configuration: dict[str, Any]) -> str:
    """A hash of every weight and of the architecture, however they were stored."""
    digest = hashlib.sha256(json.dumps(configuration, sort_keys=True, default=str).encode())
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(f"\0{name}\0{tuple(tensor.shape)}\0".encode())
        digest.update(tensor.detach().cpu().contiguous().numpy().data)
    return digest.hexdigest()


def _on_hub(about: dict[str, Any]) -> tuple[str, list[str]]:
    """Repository and the names the file may have there, best first."""
    repository, _, name = str(about.get("hf_hub", "")).rpartition("/")
    constants = library("open_clip", "openclip").constants
    if not repository:
        return "", []
    if not name:
        return repository, [constants.HF_SAFE_WEIGHTS_NAME, constants.HF_WEIGHTS_NAME]
    return repository, [str(Path(name).with_suffix(".safetensors")), name]


def _load_torchscript(model: Any, file: Path) -> None:
    state = read_torchscript(file)
    for note in ("input_resolution", "context_length", "vocab_size", "attn_mask"):
        state.pop(note, None)  # the architecture says the same
    model.load_state_dict(state, strict=True)


def _ways(about: dict[str, Any]) -> list[tuple[str, dict[str, bool]]]:
    """An address to look at and how open_clip downloads from there."""
    hub = library("huggingface_hub", "openclip").constants.ENDPOINT
    ways = [(hub, {"prefer_hf_hub": True})] if about.get("hf_hub") else []
    return ways + ([(about["url"], {"prefer_hf_hub": False})] if about.get("url") else [])


def check_reachable(address: str) -> None:
    """Fail within seconds where there is no network."""
    try:
        urlopen(Request(address, method="HEAD"), timeout=10).close()
    except HTTPError:
        return  # somebody is there
    except OSError as error:
        reason = getattr(error, "reason", error)
        host = urlsplit(address).hostname
        raise ConnectionError(f"{host}: {getattr(reason, 'strerror', None) or reason}") from None


def _unreachable(model: str, tag: str, about: dict[str, Any], reason: str) -> str:
    quick = f"{model}-quickgelu"
    known = about.get("quick_gelu") and quick in library("open_clip", "openclip").list_models()
    _, names = _on_hub(about)
    file = names[0] if names else about["url"].rsplit("/", 1)[-1]
    return (
        f"The weights {model}:{tag} are not on this machine and cannot be fetched ({reason}): "
        f"put {file} from {published_at(model, tag)} into this folder "
        f"and use --model {quick if known else model}:{file}."
    )


def _misfit(file: Path, error: Exception) -> str:
    strange = re.search(r"(?:key.*?\"|size mismatch for )([\w.]+)", str(error))
    detail = f"see {strange[1]}" if strange else first_line(error)
    return f"{file} holds weights of another model ({detail}): name the model they belong to."
