"""Our tokenizers against those of open_clip."""

from __future__ import annotations

import json
import re
import unicodedata
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from crg.encoders import load_encoder
from crg.encoders.export import export, write_tokenizer
from crg.encoders.onnx import Tokenize, TokenizerUse, read_tokenizer
from sentences import check_refused
from small_models import MODELS, open_clip, save_model

# What people write, what breaks tokenizers, and the words that mean something to this one.
AWKWARD = [
    *("it's", "WE'LL", "a_b", "...", "3.14", "x" * 50, "<start_of_text>", "<END_OF_TEXT>x"),
    *("don\u2019t", "'\u017f", "&amp;lt;", "\xc3\xa9", "\ufb01g", "\uff21", "e\u0301", "\xbd\xb2"),
    *("漢字かな", "😀👩\u200d👧", "\u200b", "\xa0", "\x1c", "\u0345", "\u21165"),
]
_known = st.characters(exclude_categories=["Cs", "Cn"])
TEXTS = st.lists(st.one_of(st.sampled_from(AWKWARD), st.text(_known, max_size=8)), max_size=8)


@pytest.fixture(scope="module", params=["lower", "whitespace", "canonicalize"])
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """open_clip's tokenizer and ours, which read what was written of it."""
    theirs = open_clip().SimpleTokenizer(clean=request.param)
    folder = tmp_path_factory.mktemp("tokenizer")
    return theirs, _written_and_read(theirs, folder)


def test_known_texts_have_the_same_tokens(pair: tuple[Any, Tokenize]) -> None:
    """Prompts, awkward and long texts are cut up in the same way; random shortening is refused."""
    theirs, ours = pair
    random = open_clip().SimpleTokenizer(reduction_mask="random")
    check_refused(("SimpleTokenizer", "open_clip"), write_tokenizer, random, Path("nowhere"))
    prompts = [f"a photo of a {word}, a type of {word}." for word in AWKWARD]
    texts = [*AWKWARD, *prompts, "", " ", "word " * 75, "word " * 76, "cat " * 999]
    for length in (77, 16, 3):
        assert np.array_equal(ours(texts, length), theirs(texts, length).numpy())


@settings(max_examples=300, deadline=None)
@given(pieces=TEXTS)
def test_any_text_has_the_same_tokens(pair: tuple[Any, Tokenize], pieces: list[str]) -> None:
    """Whatever the text, the tokens are those of open_clip, with two exceptions.

    Cleaning may turn known characters into one that Unicode has not assigned, on which tables
    differ. Directly behind punctuation, only ours takes a special token for one.
    """
    theirs, ours = pair
    text = " ".join(pieces[:3]) + "".join(pieces[3:])
    clean = theirs.clean_fn(text)
    assume("Cn" not in map(unicodedata.category, clean))
    assume(not re.search(r"([^\s\w]|_)<(start|end)_of_text>", clean))
    assert np.array_equal(ours([text], 77), theirs([text]).numpy())


@pytest.mark.parametrize("strip", [True, False])
def test_tokenizers_from_hugging_face(tmp_path: Path, strip: bool) -> None:
    """A tokenizer of transformers is written down and cuts up texts in the same way."""
    theirs = _hugging_face_tokenizer(tmp_path / "original", strip)
    (tmp_path / "written").mkdir()
    ours = _written_and_read(theirs, tmp_path / "written")
    texts = ["a photo of a cat", "A  dog!", "", "cat " * 99, "unknown &amp; words"]
    for length in (16, 5):
        assert np.array_equal(ours(texts, length), theirs(texts, length).numpy())


def test_a_model_with_such_a_tokenizer_is_exported(tmp_path: Path) -> None:
    """Its exported text features agree, although torch and transformers are not asked."""
    pytest.importorskip("onnx")
    _hugging_face_tokenizer(tmp_path / "words", strip=False)
    text = {"context_length": 16, "vocab_size": 10, "width": 32, "heads": 2, "layers": 1}
    words = {"hf_tokenizer_name": str(tmp_path / "words"), "pool_type": "last"}
    about = {**MODELS["small-vit"], "custom_text": True, "text_cfg": {**text, **words}}
    (tmp_path / "small-words.json").write_text(json.dumps(about))
    open_clip().add_model_config(tmp_path / "small-words.json")
    encoder = load_encoder(f"small-words:{save_model('small-words', tmp_path / 'w.pt')}")
    exported = load_encoder(export(encoder.name, tmp_path / "out")["name"])
    texts = ["a photo of a cat", "a dog!", "cat " * 99]
    assert np.allclose(exported.encode_texts(texts), encoder.encode_texts(texts), atol=1e-5)
    assert (tmp_path / "out" / "tokenizer.json").is_file()


def _written_and_read(tokenizer: Any, folder: Path) -> Tokenize:
    about = msgspec.json.encode(write_tokenizer(tokenizer, folder))
    return read_tokenizer(msgspec.json.decode(about, type=TokenizerUse), folder)


def _hugging_face_tokenizer(folder: Path, strip: bool) -> Any:
    outer: Any = pytest.importorskip("transformers").PreTrainedTokenizerFast
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", "photo", "of", "cat", "dog", "!"]
    inner = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, "[UNK]"))
    inner.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    ends = [("[CLS]", 2), ("[SEP]", 3)]
    inner.post_processor = processors.TemplateProcessing("[CLS] $A [SEP]", None, ends)
    special = {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]"}
    named = {f"{kind}_token": token for kind, token in special.items()}
    outer(tokenizer_object=inner, **named).save_pretrained(folder)
    return open_clip().tokenizer.HFTokenizer(
        str(folder), context_length=16, clean="canonicalize", strip_sep_token=strip
    )
