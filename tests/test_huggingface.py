"""Models of transformers: features as from its own processor and model, from folders offline."""

from __future__ import annotations

import json
import pickle
import shutil
from pathlib import Path
from typing import Any
from unittest.mock import Mock
from urllib.error import URLError

import numpy as np
import pytest

import crg
from crg.encoders import load_encoder, torch_encoder
from crg.extras import library
from crg.images.views import Recipe, make_views
from sentences import check_refused
from small_models import check_alone_and_together, some_image

transformers: Any = pytest.importorskip("transformers")
torch: Any = pytest.importorskip("torch")
TEXTS = ["a photo of a cat.", "DOGS", "", "word " * 99, "naïve café"]
_TOWER = {"hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 2}
_HALF: dict[str, Any] = {**_TOWER, "num_hidden_layers": 2}
_SIGLIP_LENGTH = 16


def _words(folder: Path, kind: str) -> Any:
    """A tokenizer of letters: CLIP's own class, or one as SigLIP has them."""
    if kind == "siglip":
        tokenizers: Any = pytest.importorskip("tokenizers")
        letters = {letter: number for number, letter in enumerate(["</s>", "<unk>", *"abcdefgh"])}
        inner = tokenizers.Tokenizer(tokenizers.models.WordLevel(letters, unk_token="<unk>"))
        inner.pre_tokenizer = tokenizers.pre_tokenizers.Split("", "isolated")
        inner.post_processor = tokenizers.processors.TemplateProcessing(
            single="$A </s>", special_tokens=[("</s>", 0)]
        )
        tokens = {"eos_token": "</s>", "pad_token": "</s>", "unk_token": "<unk>"}
        return transformers.PreTrainedTokenizerFast(
            tokenizer_object=inner, model_max_length=_SIGLIP_LENGTH, **tokens
        )
    plain, special = "abcdefghijklmnopqrstuvwxyz.", ["<|startoftext|>", "<|endoftext|>"]
    pieces = [*plain, *(f"{letter}</w>" for letter in plain), "ca", *special]
    vocabulary = {piece: number for number, piece in enumerate(pieces)}
    (folder / "vocab.json").write_text(json.dumps(vocabulary))
    (folder / "merges.txt").write_text("#version: 0.2\nc a\n")
    return transformers.CLIPTokenizer(
        str(folder / "vocab.json"), str(folder / "merges.txt"), model_max_length=77
    )


def _saved(folder: Path, kind: str, **options: Any) -> Path:
    """A small random model of the real class with its processor, in a folder."""
    folder.mkdir()
    words = _words(folder, kind)
    numbers = {"vocab_size": len(words), "eos_token_id": words.eos_token_id}
    length = 77 if kind == "clip" else _SIGLIP_LENGTH
    text = {**_HALF, **numbers, "bos_token_id": 0, "max_position_embeddings": length}
    text |= {"pad_token_id": words.pad_token_id}
    halves = {"text_config": text, "vision_config": {**_HALF, "image_size": 32, "patch_size": 8}}
    with torch.random.fork_rng():
        torch.manual_seed(0)
        if kind == "clip":
            config = transformers.CLIPConfig(**halves, projection_dim=24)
            model = transformers.CLIPModel(config)
        else:
            model = transformers.SiglipModel(transformers.SiglipConfig(**halves))
            model.logit_bias.data.fill_(-9.5)
            model.logit_scale.data.fill_(2.0)
    model.eval().save_pretrained(folder, **options)
    words.save_pretrained(folder)
    _processor(kind).save_pretrained(folder)
    return folder


def _processor(kind: str) -> Any:
    if kind == "clip":
        from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil

        return CLIPImageProcessorPil(
            size={"shortest_edge": 32}, crop_size={"height": 32, "width": 32}
        )
    from transformers.models.siglip.image_processing_pil_siglip import SiglipImageProcessorPil

    return SiglipImageProcessorPil(size={"height": 32, "width": 32}, resample=2)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One model of each family."""
    library("transformers", "huggingface")
    place = tmp_path_factory.mktemp("models")
    return {kind: _saved(place / kind, kind) for kind in ("clip", "siglip")}


@pytest.fixture
def clip(folders: dict[str, Path], tmp_path: Path) -> Path:
    """A copy that a test may spoil."""
    return shutil.copytree(folders["clip"], tmp_path / "copy")


def _unit(rows: Any) -> Any:
    rows = getattr(rows, "pooler_output", rows).detach().numpy()
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def test_a_pipeline_scores_as_that_of_transformers(folders: dict[str, Path]) -> None:
    """One image and several get the same scores in the same form, where nothing is learnt."""
    folder, task = folders["clip"], "zero-shot-image-classification"
    model = transformers.CLIPModel.from_pretrained(folder).eval()
    words = transformers.AutoTokenizer.from_pretrained(folder)
    parts = {"model": model, "tokenizer": words, "image_processor": _processor("clip")}
    theirs = transformers.pipeline(task, **parts)
    ours: Any = crg.pipeline(task, model=str(folder), device="cpu", adapt=False)
    images, labels = [some_image(96, 64), some_image(40, 60, seed=1)], ["cat", "a dog", "bee"]
    for given in (images[0], images):
        for more in ({}, {"hypothesis_template": "art of a {}."}):
            scores = [pipe(given, candidate_labels=labels, **more) for pipe in (ours, theirs)]
            alone, known = (each if given is images else [each] for each in scores)
            for mine, other in zip(alone, known, strict=True):
                assert [each["label"] for each in mine] == [each["label"] for each in other]
                for one, two in zip(mine, other, strict=True):
                    assert one.keys() == two.keys() and abs(one["score"] - two["score"]) < 1e-5


@pytest.mark.parametrize("kind", ["clip", "siglip"])
def test_features_are_those_of_transformers(folders: dict[str, Path], kind: str) -> None:
    """Features are those of its own processor, tokenizer and model, whatever the batch."""
    encoder = load_encoder(f"hf:{folders[kind]}", device="cpu")
    check_alone_and_together(encoder)
    model = getattr(transformers, {"clip": "CLIPModel", "siglip": "SiglipModel"}[kind])
    model = model.from_pretrained(folders[kind]).eval()
    images = [some_image(96, 64), some_image(40, 60, seed=1), some_image(32, 32, seed=2)]
    prepared = _processor(kind)(images, return_tensors="pt")
    views = [make_views(image, encoder.preprocessing, Recipe(), "") for image in images]
    theirs = _unit(model.get_image_features(**prepared))
    assert np.allclose(encoder.encode_images(np.concatenate(views)), theirs, atol=2e-6)
    words = transformers.AutoTokenizer.from_pretrained(folders[kind])
    length = 77 if kind == "clip" else _SIGLIP_LENGTH
    padding = True if kind == "clip" else "max_length"
    tokens = words(TEXTS, padding=padding, truncation=True, max_length=length, return_tensors="pt")
    given = tokens if kind == "clip" else {"input_ids": tokens["input_ids"]}
    texts = encoder.encode_texts(TEXTS)
    assert np.allclose(texts, _unit(model.get_text_features(**given)), atol=2e-6)
    assert encoder.logit_scale == pytest.approx(float(model.logit_scale.exp().item()))
    assert (encoder.width, texts.shape[1]) == ((24, 24) if kind == "clip" else (32, 32))
    ours = encoder.preprocessing
    expected = ("shortest", "bicubic") if kind == "clip" else ("squash", "bilinear")
    assert (ours.size, ours.fit, ours.interpolation) == (32, *expected)
    assert (ours.mean == ours.std == (0.5, 0.5, 0.5)) == (kind == "siglip")


def _change(folder: Path, name: str, **changes: Any) -> None:
    about = json.loads((folder / name).read_text())
    (folder / name).write_text(json.dumps(about | changes))


@pytest.mark.parametrize(
    "changes",
    [
        {"resample": 1}, {"do_center_crop": False}, {"size": {"shortest_edge": 40}},
        {"size": {"height": 32, "width": 40}}, {"do_normalize": False}, {"do_rescale": False},
        {"rescale_factor": 1.0}, {"image_mean": [0.5]}, {"image_std": [0.5, 0, 0.5]},
        {"image_std": None}, {"size": "large"}, {"crop_size": {"longest": 5}},
    ],
    ids=str,
)  # fmt: skip
def test_other_ways_to_prepare_images_are_refused(clip: Path, changes: dict[str, Any]) -> None:
    """What crg cannot do in the same way is not done in another."""
    _change(clip, "preprocessor_config.json", **changes)
    check_refused(("prepares images", "another model"), load_encoder, f"hf:{clip}")


def test_the_fingerprint_is_of_the_contents(folders: dict[str, Path], clip: Path) -> None:
    """A copy has the same one, another preparation another; plain sizes are the shorter side."""
    first = load_encoder(f"hf:{folders['clip']}").fingerprint
    _change(clip, "preprocessor_config.json", size=32, crop_size=32)  # as OpenAI published them
    assert load_encoder(f"hf:{clip}").fingerprint == first
    _change(clip, "preprocessor_config.json", image_mean=[0.1, 0.2, 0.3])
    assert load_encoder(f"hf:{clip}").fingerprint != first


def test_code_in_a_folder_is_never_run(clip: Path) -> None:
    """Classes of a configuration are not imported, and of pickled weights only tensors are read."""
    from safetensors.torch import load_file

    class Runs:
        def __reduce__(self) -> Any:
            return Path.mkdir, (clip / "run",)

    expected = load_encoder(f"hf:{clip}")
    (clip / "mine.py").write_text(f"import pathlib; pathlib.Path({str(clip / 'run')!r}).mkdir()\n")
    _change(clip, "config.json", auto_map={"AutoModel": "mine.M", "AutoConfig": "mine.C"})
    _change(clip, "tokenizer_config.json", auto_map={"AutoTokenizer": ["mine.T", None]})
    torch.save(load_file(clip / "model.safetensors"), clip / "pytorch_model.bin")
    (clip / "model.safetensors").unlink()
    assert load_encoder(f"hf:{clip}").fingerprint == expected.fingerprint
    (clip / "pytorch_model.bin").write_bytes(pickle.dumps(Runs()))
    check_refused((str(clip), "cannot be loaded"), load_encoder, f"hf:{clip}")
    assert not (clip / "run").exists()


def _without_a_weight(folder: Path) -> None:
    from safetensors.torch import load_file, save_file

    weights = load_file(folder / "model.safetensors")
    del weights["text_projection.weight"]
    save_file(weights, folder / "model.safetensors", {"format": "pt"})


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (_without_a_weight, ["text_projection.weight", "complete model"]),
        (lambda folder: _change(folder, "config.json", projection_dim=25), ["copy"]),
        (lambda folder: _change(folder, "config.json", model_type="bert"), ["'bert'", "siglip"]),
        (lambda folder: (folder / "config.json").write_text("{"), ["config.json", "damaged"]),
        (lambda folder: (folder / "config.json").unlink(), ["has no config.json"]),
        (lambda folder: (folder / "model.safetensors").unlink(), ["cannot be loaded"]),
        (lambda folder: (folder / "model.safetensors").write_bytes(b"x" * 99), ["cannot be"]),
        (lambda folder: (folder / "preprocessor_config.json").unlink(), ["has no preproc"]),
    ],
)
def test_incomplete_folders_are_refused(clip: Path, spoil: Any, words: list[str]) -> None:
    """A model whose files are not all there, or do not fit, is never used in part."""
    spoil(clip)
    check_refused(tuple(words), load_encoder, f"hf:{clip}")


def test_only_models_that_were_not_downloaded_need_the_network(
    folders: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model in the cache is found by name; without network the sentence says what to do."""
    import huggingface_hub.constants

    fail = Mock(side_effect=URLError(OSError(-2, "Name or service not known")))
    monkeypatch.setattr(torch_encoder, "urlopen", fail)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    for name, words in (
        ("openai/clip-vit-base-patch32", ("Name or service", "hf:FOLDER")),
        ("/nowhere/at/all", ("no folder", "hf:USER/MODEL")),
    ):
        check_refused((name, *words), load_encoder, f"hf:{name}")
    repository = tmp_path / "models--someone--small"
    shutil.copytree(folders["clip"], repository / "snapshots" / ("a" * 40))
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("a" * 40)
    encoder = load_encoder("hf:someone/small")
    assert encoder.fingerprint == load_encoder(f"hf:{folders['clip']}").fingerprint
