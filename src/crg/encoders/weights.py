"""Weights of open_clip models: find and fetch published ones, load those of any checkpoint."""

from __future__ import annotations

import io
import pickle
import re
import zipfile
from pathlib import Path
from typing import Any

from crg.encoders.torch_encoder import check_reachable
from crg.extras import first_line, library
from crg.suggest import nearest
from crg.types import InputError

_SUFFIXES = (".pt", ".pth", ".bin", ".ckpt", ".safetensors", ".npz")
_MISFITS = (KeyError, AttributeError, TypeError, IndexError, AssertionError)
_CLIP_CACHE = Path("~/.cache/clip")  # where both openai/CLIP and open_clip keep downloads


def parse_name(name: str) -> tuple[str, str | Path]:
    """Split MODEL, MODEL:TAG or MODEL:FILE into open_clip's model and a tag or a file."""
    open_clip = library("open_clip", "openclip")
    given, colon, rest = name.partition(":")
    known: list[str] = open_clip.list_models()
    asked = given.replace("/", "-").lower()
    model = {each.lower(): each for each in known}.get(asked)
    if model is None:
        hint = nearest(asked, [*known, "mini"], "crg encoders lists them.")
        raise InputError(f"There is no model {given!r}: {hint}")
    tags: list[str] = open_clip.list_pretrained_tags_by_model(model)
    if not colon:
        return model, _default_tag(model, tags)
    if open_clip.pretrained.is_pretrained_cfg(model, rest):
        return model, rest.lower().replace("-", "_")
    return model, _existing_file(model, rest, tags)


def _default_tag(model: str, tags: list[str]) -> str:
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


def check_file(model: str, given: str) -> None:
    """Refuse a name of weights that can only be a file and is none; no library is imported."""
    path = Path(given).expanduser()
    if path.exists() or model.endswith(("-hub", "-dir")):
        return
    if "/" in given or "\\" in given or path.suffix.lower() in _SUFFIXES:
        raise InputError(f"There is no file {given}: put the weights of {model} there.")


def _existing_file(model: str, given: str, tags: list[str]) -> Path:
    path = Path(given).expanduser()
    if path.is_file():
        return path
    if path.is_dir():
        raise InputError(f"{given} is a folder: give the file of weights in it, {model}:FILE.")
    remedy = f"choose one of {', '.join(tags)}, or give a file" if tags else "give a file"
    raise InputError(f"{model} has no weights called {given!r}: {remedy}.")


def find_weights(model: str, tag: str) -> Path | None:
    """The file of published weights, if it is already on this machine."""
    about = library("open_clip", "openclip").get_pretrained_cfg(model, tag)
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
    about = library("open_clip", "openclip").get_pretrained_cfg(model, tag)
    repository, _ = _on_hub(about)
    return f"https://huggingface.co/{repository}" if repository else str(about.get("url", ""))


def fetch_weights(model: str, tag: str) -> Path:
    """The file of published weights, downloaded if necessary."""
    if found := find_weights(model, tag):
        return found
    about = library("open_clip", "openclip").get_pretrained_cfg(model, tag)
    hub = library("huggingface_hub", "openclip").constants.ENDPOINT if about.get("hf_hub") else None
    download = library("open_clip", "openclip").pretrained.download_pretrained
    reason = ""
    for address in filter(None, (hub, about.get("url"))):
        try:
            check_reachable(address)
            return Path(download(about, prefer_hf_hub=address == hub))
        except Exception as error:  # network, disk or hub: each library has its own kinds
            reason = reason or first_line(error)
    quick = f"{model}-quickgelu"
    known = about.get("quick_gelu") and quick in library("open_clip", "openclip").list_models()
    file = [*_on_hub(about)[1], str(about.get("url")).rsplit("/", 1)[-1]][0]
    raise InputError(
        f"The weights {model}:{tag} are not on this machine and cannot be fetched ({reason}): "
        f"put {file} from {published_at(model, tag)} into this folder "
        f"and use --model {quick if known else model}:{file}."
    )


def _on_hub(about: dict[str, Any]) -> tuple[str, list[str]]:
    """The repository, and the names that the file may have there, best first."""
    repository, _, name = str(about.get("hf_hub", "")).rpartition("/")
    constants = library("open_clip", "openclip").constants
    if not repository:
        return "", []
    if not name:
        return repository, [constants.HF_SAFE_WEIGHTS_NAME, constants.HF_WEIGHTS_NAME]
    return repository, [str(Path(name).with_suffix(".safetensors")), name]


def load_weights(model: Any, file: Path) -> None:
    """Load the tensors of ``file`` into ``model`` by open_clip's loader; they must fit exactly."""
    try:
        if is_torchscript(file):
            state = read_torchscript(file)
            weights = {name: state[name] for name in state if name not in _NOTES}
            model.load_state_dict(weights, strict=True)
        else:
            library("open_clip", "openclip").factory.load_checkpoint(model, str(file))
    except Exception as error:
        if isinstance(error, _MISFITS) or "loading state_dict" in str(error):
            strange = re.search(r"(?:key.*?\"|size mismatch for )([\w.]+)", str(error))
            detail = f"see {strange[1]}" if strange else first_line(error)
            raise InputError(
                f"{file} holds weights of another model ({detail}): name the model they belong to."
            ) from None
        unsafe = isinstance(error, pickle.UnpicklingError)
        reason = "not a file of tensors alone" if unsafe else first_line(error)
        raise InputError(
            f"{file} cannot be read as weights ({reason}): put a complete checkpoint there."
        ) from None


# OpenAI published its models as TorchScript archives, whose code torch.jit.load would compile.
_STORAGES = {"HalfStorage": "float16", "FloatStorage": "float32", "LongStorage": "int64"}
_NOTES = ("input_resolution", "context_length", "vocab_size", "attn_mask")  # no weights


def is_torchscript(file: Path) -> bool:
    """Whether the file is a TorchScript archive."""
    if not zipfile.is_zipfile(file):
        return False
    with zipfile.ZipFile(file) as archive:
        return any(name.endswith("/constants.pkl") for name in archive.namelist())


def read_torchscript(file: Path) -> dict[str, Any]:
    """Read the tensors of a TorchScript archive by name, without running any of its code."""
    with zipfile.ZipFile(file) as archive:
        waiting = [("", _TorchScript(archive).load())]
    found: dict[str, Any] = {}
    seen: set[int] = set()  # a pickle can refer to one module many times over
    while waiting:
        prefix, module = waiting.pop()
        for name, value in module.items():
            if isinstance(value, library("torch", "openclip").Tensor):
                found[prefix + name] = value
            elif isinstance(value, _Module) and id(value) not in seen:
                seen.add(id(value))
                waiting.append((f"{prefix}{name}.", value))
    return found


class _Module(dict[str, Any]):
    """A module of an archive as a dictionary of its attributes; it has no code."""

    __setstate__ = dict.update


class _TorchScript(pickle.Unpickler):
    """Reads ``data.pkl``, whose tensors are in ``data/``; refuses all but modules and tensors."""

    def __init__(self, archive: zipfile.ZipFile) -> None:
        self._archive, self._root = archive, archive.namelist()[0].split("/")[0]
        super().__init__(io.BytesIO(archive.read(f"{self._root}/data.pkl")))

    def find_class(self, module: str, name: str) -> Any:
        if module.startswith("__torch__."):  # where the classes of compiled modules are
            return _Module
        if (module, name) == ("collections", "OrderedDict"):
            return dict
        if (module, name) == ("torch._utils", "_rebuild_tensor_v2"):
            # torch refuses a view that reaches beyond the end of its storage
            return lambda values, offset, size, stride, *_: values.as_strided(size, stride, offset)
        if module == "torch.jit._pickle" and name.startswith("build_"):
            return list  # of plain values
        if module == "torch" and name in _STORAGES:
            return getattr(library("torch", "openclip"), _STORAGES[name])
        raise pickle.UnpicklingError(f"{module}.{name} is no tensor")

    def persistent_load(self, pid: Any) -> Any:
        _, kind, key, *_ = pid
        values = bytearray(self._archive.read(f"{self._root}/data/{key}"))
        return library("torch", "openclip").frombuffer(values, dtype=kind)
