"""Names and weights of open_clip models: found, fetched and read; nothing in a file is run."""

from __future__ import annotations

import json
import os
import pickle
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock
from urllib.error import HTTPError, URLError

import numpy as np
import pytest

from crg.encoders import list_encoders, load_encoder
from crg.encoders import torch_encoder as module
from crg.encoders.openclip import OpenClip, _habits
from crg.encoders.weights import is_torchscript, read_torchscript
from sentences import check_refused
from small_models import (
    MODELS,
    make_model,
    open_clip,
    plain_pixels,
    register_models,
    save_model,
    saved,
    some_features,
    some_image,
)

torch: Any = pytest.importorskip("torch")


@pytest.fixture(autouse=True, scope="module")
def _usable() -> None:
    register_models()


@pytest.fixture
def publish(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Publish weights of the small transformer under a tag."""
    published: dict[str, Any] = {}
    monkeypatch.setitem(open_clip().pretrained._PRETRAINED, "small-vit", published)

    def add(tag: str, **about: Any) -> None:
        published[tag] = open_clip().pretrained._pcfg(**about)

    return add


@pytest.fixture
def empty_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A home without any downloads."""
    import huggingface_hub.constants

    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))


def test_a_tag_brings_its_preprocessing_and_activation(publish: Any) -> None:
    """Published weights say how images are prepared and which activation they want."""
    file = saved("small-vit").partition(":")[2]
    strange = {"mean": (0.5, 0.4, 0.3), "std": (0.1, 0.2, 0.3), "resize_mode": "squash"}
    publish("plain", file=file)
    publish("odd", file=file, quick_gelu=True, interpolation="bilinear", **strange)
    plain, odd = OpenClip("small-vit:plain"), OpenClip("small-vit:odd")
    assert (odd.preprocessing.mean, odd.preprocessing.std) == (strange["mean"], strange["std"])
    assert (odd.preprocessing.fit, odd.preprocessing.interpolation) == ("squash", "bilinear")
    assert (plain.preprocessing.fit, plain.preprocessing.interpolation) == ("shortest", "bicubic")
    assert (plain.configuration["quick_gelu"], odd.configuration["quick_gelu"]) == (False, True)
    assert plain.fingerprint != odd.fingerprint
    prepared = {**strange, "interpolation": "bilinear"}
    model = make_model("small-vit", force_quick_gelu=True, force_preprocess_cfg=prepared)
    expected, _ = some_features(model, "small-vit", some_image(), ["a"])
    features = odd.encode_images(plain_pixels(some_image(), odd.preprocessing))
    assert np.allclose(features, expected, atol=2e-6)


def test_a_file_follows_what_all_published_weights_agree_on(publish: Any) -> None:
    """A file of weights does not say how images are prepared; the published ones do."""
    publish("one", quick_gelu=True, resize_mode="squash", interpolation="bilinear")
    publish("two", quick_gelu=True, resize_mode="squash")
    encoder = OpenClip(saved("small-vit"))
    assert encoder.configuration["quick_gelu"] and _habits("RN50", Path("RN50.pt"))["quick_gelu"]
    assert (encoder.preprocessing.fit, encoder.preprocessing.interpolation) == ("squash", "bicubic")


@pytest.mark.parametrize(("tags", "chosen"), [(["a", "openai"], "openai"), (["my_one"], "my_one")])
def test_the_default_weights(publish: Any, tags: list[str], chosen: str) -> None:
    """Without a tag OpenAI's weights are used, or the only ones; names match in any case."""
    for seed, tag in enumerate(tags):
        publish(tag, file=saved("small-vit", seed).partition(":")[2])
    named = OpenClip(f"Small/ViT:{chosen.replace('_', '-')}")
    assert (named.name, named.width) == (f"Small/ViT:{chosen.replace('_', '-')}", 24)
    assert OpenClip("small-vit").fingerprint == named.fingerprint


@pytest.mark.usefixtures("empty_home")
def test_the_caches_of_the_hub_and_of_clip_are_used(publish: Any, tmp_path: Path) -> None:
    """Weights that were downloaded before, by whichever program, are listed and not fetched."""
    from safetensors.torch import save_file

    publish("hub", hf_hub="someone/model/")
    publish("clip", url="https://example.org/sha/small.pt")
    repository = tmp_path / "hub" / "models--someone--model"
    snapshot = repository / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("abc")
    save_file(make_model("small-vit", 1).state_dict(), snapshot / "open_clip_model.safetensors")
    (tmp_path / "home" / ".cache" / "clip").mkdir(parents=True)
    save_model("small-vit", tmp_path / "home" / ".cache" / "clip" / "small.pt", 2)
    hub, clip = OpenClip("small-vit:hub"), OpenClip("small-vit:clip")
    assert hub.fingerprint != clip.fingerprint
    publish("absent", url="https://example.org/absent.pt")
    rows = {row.name: (row.here, row.source) for row in list_encoders("small-vit")}
    assert rows["small-vit:clip"] == (True, str(tmp_path / "home/.cache/clip/small.pt"))
    assert rows["small-vit:absent"] == (False, "https://example.org/absent.pt")


@pytest.mark.usefixtures("empty_home")
def test_unreachable_weights_say_which_file_to_put_where(
    publish: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sentence names the host, the file, its address and the name to use then.

    A host that answers but has no such file is not taken for a missing network.
    """
    fail = Mock(side_effect=URLError(OSError(-2, "Name or service not known")))
    monkeypatch.setattr(module, "urlopen", fail)
    monkeypatch.setattr(open_clip().pretrained.urllib.request, "urlopen", fail)
    words = (
        "huggingface.co: Name or service not known",
        "put open_clip_model.safetensors from https://huggingface.co/timm/resnet50_clip.openai",
        "--model RN50-quickgelu:open_clip_model.safetensors",
    )
    check_refused(words, load_encoder, "RN50")
    publish("web", url="https://example.org/sha/small.pt")
    words = ("example.org", "put small.pt", "--model small-vit:small.pt")
    check_refused(words, load_encoder, "small-vit:web")
    fail.side_effect = HTTPError("https://example.org", 404, "Not Found", {}, None)  # type: ignore[arg-type]
    check_refused(("404", "put small.pt"), load_encoder, "small-vit:web")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("RN5", ["'RN5'", "RN50"]),
        ("vitb16", ["ViT-B-16"]),
        ("", ["crg encoders"]),
        ("minii", ["did you mean 'mini'?"]),
        ("ViT-B/16:openia", ["'openia'", "laion2b_s34b_b88k"]),
        ("ViT-B-16:nowhere/w.pt", ["nowhere/w.pt", "put the weights of ViT-B-16 there"]),
        ("ViT-B-16:/", ["a folder"]),
        ("ViT-H-14", ["ViT-H-14:TAG", "laion2b_s32b_b79k"]),
        ("small-vit", ["No weights are published", "small-vit:FILE"]),
        ("small-vit:best", ["'best'", "give a file"]),
        ("local-dir:/nowhere", ["/nowhere", "open_clip_config.json"]),
    ],
)
def test_names_that_mean_nothing_are_refused(name: str, words: list[str]) -> None:
    """The refusal names the nearest models, the tags there are, or where the file should be."""
    check_refused(tuple(words), load_encoder, name)


def test_files_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    """No half checkpoint, nor one of another model, is loaded; objects in it are never run."""
    from safetensors.torch import save

    save_model("small-vit", tmp_path / "whole.pt")
    whole, state = (tmp_path / "whole.pt").read_bytes(), make_model("small-vit").state_dict()
    half = save(state)[:9999]
    bomb = pickle.dumps(_Calls(Path.mkdir, tmp_path / "run"))
    for content in (b"", b"not weights" * 99, whole[: len(whole) // 2], bomb, half):
        file = tmp_path / ("w.safetensors" if content == half else "w.pt")
        file.write_bytes(content)
        check_refused((str(file), "complete checkpoint"), load_encoder, f"small-vit:{file}")
    assert not (tmp_path / "run").exists()
    for other in ("small-resnet", "small-sigmoid"):
        file = Path(saved(other).partition(":")[2])
        check_refused((str(file), "another model"), load_encoder, f"small-vit:{file}")


def test_a_folder_with_configuration_and_weights(tmp_path: Path) -> None:
    """open_clip's own folders are read through local-dir: with what their configuration says."""
    from safetensors.torch import save_file

    about = {"model_cfg": {**MODELS["small-vit"], "quick_gelu": True}}
    about["preprocess_cfg"] = {"mean": [0.5, 0.5, 0.5], "std": [0.2, 0.2, 0.2]}
    (tmp_path / "open_clip_config.json").write_text(json.dumps(about))
    save_file(make_model("small-vit").state_dict(), tmp_path / "open_clip_model.safetensors")
    encoder = OpenClip(f"local-dir:{tmp_path}")
    assert encoder.preprocessing.std == (0.2, 0.2, 0.2)
    assert encoder.configuration["quick_gelu"]
    assert np.isfinite(encoder.encode_texts(["a cat"])).all()


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A traced transformer in half precision, as OpenAI published them, and a scripted layer."""
    folder = tmp_path_factory.mktemp("archives")
    model = make_model("small-vit", force_quick_gelu=True)
    for note in ("input_resolution", "context_length", "vocab_size"):
        vars(model).pop(note, None)
        model.register_buffer(note, torch.tensor(77))
    example = torch.zeros(1, 3, 32, 32), torch.zeros(1, 77, dtype=torch.long)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # TorchScript is on its way out
        trace: Any = torch.jit.trace
        scripted = torch.jit.script(torch.nn.Sequential(torch.nn.BatchNorm1d(3)))
        made = {"vit": trace(model, example, check_trace=False).half(), "scripted": scripted}
        for name, archive in made.items():
            archive.save(str(folder / f"{name}.pt"))
    return {name: folder / f"{name}.pt" for name in made}


def test_archives_hold_what_torch_reads_and_mean_the_quick_activation(
    archives: dict[str, Path],
) -> None:
    """Kinds, shapes and values are torch's; OpenAI's archives mean the quick GELU."""
    for archive in archives.values():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            expected = torch.jit.load(str(archive)).state_dict()
        read = read_torchscript(archive)
        assert is_torchscript(archive) and set(read) >= set(expected)
        for key, tensor in expected.items():
            assert read[key].dtype == tensor.dtype and torch.equal(read[key], tensor), key
    encoder, image = OpenClip(f"small-vit:{archives['vit']}", device="cpu"), some_image()
    features = encoder.encode_images(plain_pixels(image, encoder.preprocessing))
    models = make_model("small-vit", force_quick_gelu=True), make_model("small-vit")
    near, far = (some_features(each, "small-vit", image, ["a"])[0] for each in models)
    assert np.abs(features - near).max() < 0.5 * np.abs(features - far).max()
    assert encoder.configuration["quick_gelu"]


class _Calls:
    def __init__(self, function: Callable[..., Any], *arguments: Any) -> None:
        self.call = function, arguments

    def __reduce__(self) -> Any:
        return self.call


def _beyond(key: str, count: int) -> bytes:
    """A pickle of one module with one tensor that begins at the storage ``key``."""
    pid = f"(X\x07\0\0\0storagectorch\nFloatStorage\nX{_text(key)}X{_text('cpu')}K\x01tQ"
    sizes = f"K\0(J{count.to_bytes(4, 'little').decode('latin-1')}t(K\x01t\x89N"
    return (
        "\x80\x02c__torch__.m\nM\n)\x81}X\x01\0\0\0wctorch._utils\n_rebuild_tensor_v2\n("
        f"{pid}{sizes}tRsb."
    ).encode("latin-1")


def _text(text: str) -> str:
    return len(text).to_bytes(4, "little").decode("latin-1") + text


@pytest.mark.parametrize(
    "content",
    [
        *(pickle.dumps(call, 2) for call in (
            _Calls(os.system, "touch run"), _Calls(Path.mkdir, Path("run")),
            _Calls(eval, "open('run', 'w')"), _Calls(getattr, "", "join"), [1, 2, 3], None,
        )),
        *(_beyond(*each) for each in (("0", 10**6), ("../../secret", 1), ("nowhere", 1))),
    ],
    ids=["system", "mkdir", "eval", "getattr", "list", "nothing", "long", "outside", "missing"],
)  # fmt: skip
def test_hostile_archives_are_refused(
    archives: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes
) -> None:
    """A pickle that calls anything, holds no model, or leaves its storages is refused."""
    monkeypatch.chdir(tmp_path)
    with zipfile.ZipFile(archives["vit"]) as old, zipfile.ZipFile("hostile.pt", "w") as new:
        for name in old.namelist():
            new.writestr(name, content if name.endswith("/data.pkl") else old.read(name))
    check_refused("hostile.pt", load_encoder, "small-vit:hostile.pt", device="cpu")
    assert not (tmp_path / "run").exists()
