"""Weights of open_clip models: find and fetch published ones, load those of any checkpoint."""

from __future__ import annotations

import io
import pickle
import re
import zipfile
from collections import OrderedDict
from pathlib import Path
from typing import Any

from crg.encoders.torch_encoder import check_reachable, tensors_only
from crg.extras import first_line, library
from crg.suggest import nearest
from crg.types import InputError

_SUFFIXES = (".pt", ".pth", ".bin", ".ckpt", ".safetensors", ".npz")
_CLIP_CACHE = Path("~/.cache/clip")  # where both openai/CLIP and open_clip keep downloads


def parse_name(name: str) -> tuple[str, str | Path]:
    """Split MODEL, MODEL:TAG or MODEL:FILE into open_clip's model and a tag or a file."""
    model, colon, rest = name.partition(":")
    model = _known_model(model)
    if not colon:
        return model, _default_tag(model)
    if library("open_clip", "openclip").pretrained.is_pretrained_cfg(model, rest):
        return model, rest.lower().replace("-", "_")
    return model, _existing_file(model, rest)


def published_tags(model: str) -> list[str]:
    """The tags of the published weights of a model."""
    tags: list[str] = library("open_clip", "openclip").list_pretrained_tags_by_model(model)
    return tags


def published_configuration(model: str, tag: str) -> dict[str, Any]:
    """The address of published weights and the preprocessing that they were trained with."""
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


def find_weights(model: str, tag: str) -> Path | None:
    """The file of published weights, if it is already on this machine."""
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
    """The file of published weights, downloaded if necessary."""
    if found := find_weights(model, tag):
        return found
    about = published_configuration(model, tag)
    hub = library("huggingface_hub", "openclip").constants.ENDPOINT if about.get("hf_hub") else None
    download = library("open_clip", "openclip").pretrained.download_pretrained
    reason = ""
    for address in filter(None, (hub, about.get("url"))):
        try:
            check_reachable(address)
            return Path(download(about, prefer_hf_hub=address == hub))
        except Exception as error:  # network, disk or hub: each library has its own kinds
            reason = reason or first_line(error)
    raise InputError(_unreachable(model, tag, about, reason))


def _on_hub(about: dict[str, Any]) -> tuple[str, list[str]]:
    """The repository, and the names that the file may have there, best first."""
    repository, _, name = str(about.get("hf_hub", "")).rpartition("/")
    constants = library("open_clip", "openclip").constants
    if not repository:
        return "", []
    if not name:
        return repository, [constants.HF_SAFE_WEIGHTS_NAME, constants.HF_WEIGHTS_NAME]
    return repository, [str(Path(name).with_suffix(".safetensors")), name]


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


def load_weights(model: Any, file: Path) -> None:
    """Load the weights of ``file`` into ``model`` by open_clip's loader; they must fit exactly."""
    try:
        if is_torchscript(file):
            state = read_torchscript(file)
            weights = {name: state[name] for name in state if name not in _NOTES}
            model.load_state_dict(weights, strict=True)
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


def _misfit(file: Path, error: Exception) -> str:
    strange = re.search(r"(?:key.*?\"|size mismatch for )([\w.]+)", str(error))
    detail = f"see {strange[1]}" if strange else first_line(error)
    return f"{file} holds weights of another model ({detail}): name the model they belong to."


# OpenAI published its models as TorchScript archives, whose code torch.jit.load would compile.
_STORAGES = {"HalfStorage": "float16", "FloatStorage": "float32", "LongStorage": "int64"}
_MOST_MODULES = 100_000  # a pickle can refer to one module many times over
_NOTES = ("input_resolution", "context_length", "vocab_size", "attn_mask")  # no weights


def is_torchscript(file: Path) -> bool:
    """Whether the file is a TorchScript archive."""
    try:
        with zipfile.ZipFile(file) as archive:
            return any(name.endswith("/constants.pkl") for name in archive.namelist())
    except (OSError, zipfile.BadZipFile):
        return False


def read_torchscript(file: Path) -> dict[str, Any]:
    """Read the tensors of a TorchScript archive by name, without running any of its code."""
    with zipfile.ZipFile(file) as archive:
        waiting = [("", _TorchScript(archive).load())]
    torch = library("torch", "openclip")
    found: dict[str, Any] = {}
    for _ in range(_MOST_MODULES):
        if not waiting:
            return found
        prefix, module = waiting.pop()
        for name, value in module.items():
            if isinstance(value, _Module):
                waiting.append((f"{prefix}{name}.", value))
            elif isinstance(value, torch.Tensor):
                found[prefix + name] = value
    raise ValueError("its modules have too many names")


class _Module(dict[str, Any]):
    """A module of an archive as a dictionary of its attributes; it has no code."""

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.update(state)


class _TorchScript(pickle.Unpickler):
    """Reads ``data.pkl``, whose tensors are in ``data/``; refuses all but modules and tensors."""

    def __init__(self, archive: zipfile.ZipFile) -> None:
        names = archive.namelist()
        self._root = next(name for name in names if name.endswith("/constants.pkl")).split("/")[0]
        self._archive = archive
        self._storages: dict[str, Any] = {}
        super().__init__(io.BytesIO(self._content("data.pkl")))

    def _content(self, name: str) -> bytearray:
        about = self._archive.getinfo(f"{self._root}/{name}")
        if about.compress_type != zipfile.ZIP_STORED:  # torch never does; it might be a zip bomb
            raise ValueError(f"{about.filename} is compressed")
        return bytearray(self._archive.read(about))

    def find_class(self, module: str, name: str) -> Any:
        if module.startswith("__torch__."):  # where the classes of compiled modules are
            return _Module
        if (module, name) == ("collections", "OrderedDict"):
            return OrderedDict
        if (module, name) == ("torch._utils", "_rebuild_tensor_v2"):
            # torch refuses a view that reaches beyond the end of its storage
            return lambda storage, offset, size, stride, *_: storage.as_strided(
                tuple(size), tuple(stride), offset
            )
        if module == "torch.jit._pickle" and name.startswith("build_"):
            return list  # of plain values
        if module == "torch" and name in _STORAGES:
            return _STORAGES[name]
        raise pickle.UnpicklingError(f"{module}.{name} is no tensor")

    def persistent_load(self, pid: Any) -> Any:
        _, kind, key, *_ = pid
        if key not in self._storages:
            torch, values = library("torch", "openclip"), self._content(f"data/{key}")
            kind = getattr(torch, kind)
            self._storages[key] = torch.frombuffer(values, dtype=kind) if values else []
        return self._storages[key]
