"""Prompts: texts, averages, descriptions, the cache, and what is refused."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from crg import prompts as caching
from crg.encoders.base import Vectors
from crg.prompts import class_prompts, distinct_names, encode_classes, make_task, read_descriptions
from encoding_fakes import HashEncoder
from sentences import check_refused

NAMES = ["sea_lion", "Red Fox"]
TEMPLATES = ["a photo of a {}.", "art of the {}."]
SENTENCES = {"Sea Lion": ["It barks."], "red_fox": ["It is red.", "It runs."]}


class LetterCounts(HashEncoder):
    """Counts of the letters, not scaled, so that scaling shows."""

    def __init__(self, fingerprint: str = "one") -> None:
        super().__init__("letters", fingerprint)
        self.width, self.calls = 26, list[list[str]]()

    def encode_texts(self, texts: Sequence[str]) -> Vectors:
        self.calls.append(list(texts))
        letters = "abcdefghijklmnopqrstuvwxyz"
        counts = [[text.lower().count(letter) for letter in letters] for text in texts]
        return np.asarray(counts, np.float32)


def _unit(row: Vectors) -> Vectors:
    return row / np.linalg.norm(row)


def _by_hand(texts: list[str]) -> Vectors:
    rows = LetterCounts().encode_texts(texts).astype(np.float64)
    return _unit(np.mean([_unit(row) for row in rows], axis=0)).astype(np.float32)


PROMPTED = [[each.format(name) for each in TEMPLATES] for name in ("sea lion", "Red Fox")]
DESCRIBED = list(SENTENCES.values())
BOTH = [[*some, *more] for some, more in zip(PROMPTED, DESCRIBED, strict=True)]


@pytest.mark.parametrize(
    ("templates", "sentences", "prompts"),
    [(TEMPLATES, None, PROMPTED), ((), SENTENCES, DESCRIBED), (TEMPLATES, SENTENCES, BOTH)],
)
def test_features_are_what_the_field_computes(
    templates: list[str], sentences: dict[str, list[str]] | None, prompts: list[list[str]]
) -> None:
    """Normalise each prompt, average, normalise: against the same by hand, of what is given."""
    features = encode_classes(LetterCounts(), NAMES, templates, sentences, None)
    np.testing.assert_allclose(features, [_by_hand(texts) for texts in prompts], rtol=1e-6)
    assert features.dtype == np.float32
    assert class_prompts(NAMES, templates, sentences) == prompts


def test_a_long_prompt_weighs_no_more_than_a_short_one() -> None:
    """Prompts are averaged at unit length; each is encoded once, and many come in several calls."""
    texts = ["aaaaaaaaaaaa", "b"]
    features = encode_classes(LetterCounts(), ["x"], [], {"x": texts}, None)
    np.testing.assert_allclose(features[0, :2], [0.5**0.5, 0.5**0.5], rtol=1e-6)
    encoder = LetterCounts()
    names = [f"thing {'a' * n}" for n in range(1, 301)]
    shared = {name: ["Shared.", f"Its name has {len(name)} letters."] for name in names}
    encode_classes(encoder, names, [], shared, None)
    sent = [text for call in encoder.calls for text in call]
    assert sent.count("Shared.") == 1
    assert len(sent) == len(set(sent)) == 301
    assert len(encoder.calls) == 2


def test_names_that_occur_twice_are_numbered_but_prompted_alike() -> None:
    """ImageNet has two classes called missile: the task numbers them, their prompts are equal."""
    notes: list[str] = []
    names = ["missile", "fox", "missile"]
    task = make_task(LetterCounts(), names, TEMPLATES, cache=None, on_note=notes.append)
    assert (task.class_names, task.logit_scale) == (("missile", "fox", "missile (2)"), 50.0)
    expected = encode_classes(LetterCounts(), names, TEMPLATES, cache=None)
    np.testing.assert_array_equal(task.text_features, expected)
    np.testing.assert_array_equal(expected[0], expected[2])
    assert len(notes) == 1 and "missile (2)" in notes[0]
    assert distinct_names(["a", "a", "a (2)", "a"]) == ("a", "a (2)", "a (2) (2)", "a (3)")


def test_descriptions_that_do_not_fit() -> None:
    """Descriptions of other classes are noted; missing ones are refused."""
    notes: list[str] = []
    class_prompts(NAMES, TEMPLATES, {**SENTENCES, "owl": ["It hoots."]}, notes.append)
    assert notes == ["The descriptions of 1 class are not used: owl."]
    lacking = "lack 6 classes (a, b, c, d, e and 1 more)"
    check_refused(lacking, class_prompts, list("abcdef"), TEMPLATES, SENTENCES)


def test_descriptions_come_from_a_file(tmp_path: Path) -> None:
    """A file in CuPL's form, with non-ASCII letters and a byte order mark, can be given."""
    path = tmp_path / "sentences.json"
    content = {"sea lion": ["Café."], "red fox": ["It runs."]}
    path.write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8-sig")
    assert read_descriptions(path) == content
    assert class_prompts(NAMES, (), path) == [["Café."], ["It runs."]]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", "not a file of descriptions"),
        ('{"a": ["x"], "a": ["y"]}', "'a' occurs twice"),
        ("[]", "holds no descriptions"),
        ("{}", "holds no descriptions"),
        ('{"a": "x"}', "no list of sentences for 'a'"),
        ('{"a": []}', "no list of sentences for 'a'"),
        ('{"a": ["x", " "]}', "empty or odd sentence for 'a'"),
        ('{"a": [3]}', "empty or odd sentence for 'a'"),
        ("\udcff", "not a file of descriptions"),
    ],
)
def test_odd_description_files_are_refused(content: str, words: str, tmp_path: Path) -> None:
    """Each way to spoil the file is reported in a sentence with the form that is wanted."""
    path = tmp_path / "sentences.json"
    path.write_bytes(content.encode("utf-8", "surrogateescape"))
    check_refused((words, "sentences.json"), read_descriptions, path)


def test_other_bad_input_is_refused(tmp_path: Path) -> None:
    """Templates and names that cannot work are refused, each in a sentence."""
    check_refused(("has 0 places", "{} exactly once"), class_prompts, NAMES, ["a photo."])
    check_refused("2 places", class_prompts, NAMES, ["a {} and a {}."])
    check_refused("one text", class_prompts, NAMES, "a photo of a {}.")
    check_refused("one text", class_prompts, "cat", TEMPLATES)
    check_refused("no class names", class_prompts, [], TEMPLATES)
    check_refused("empty", class_prompts, ["a", "_"], TEMPLATES)
    twice = {**SENTENCES, "Red Fox": ["x"]}
    check_refused("'Red Fox' twice", class_prompts, NAMES, (), twice)
    check_refused("No such file", read_descriptions, tmp_path / "nowhere.json")
    check_refused("all zeros", encode_classes, LetterCounts(), ["12", "ab"], ["{}"], cache=None)
    assert class_prompts(["{0} {x}"], ["the {}."]) == [["the {0} {x}."]]  # which is no bad input


def test_the_second_time_comes_from_the_cache(tmp_path: Path) -> None:
    """The same prompts and weights are not encoded again; anything else is."""
    encoder, cold = LetterCounts(), encode_classes(LetterCounts(), NAMES, TEMPLATES, cache=tmp_path)
    warm = encode_classes(encoder, NAMES, TEMPLATES, cache=tmp_path)
    np.testing.assert_array_equal(cold, warm)
    assert encoder.calls == []
    warm[:] = 0  # what was handed out may be written to
    encode_classes(encoder, NAMES, TEMPLATES[:1], cache=tmp_path)
    encode_classes(encoder, NAMES[::-1], TEMPLATES, cache=tmp_path)
    encode_classes(encoder, ["sea_lion a", "photo"], TEMPLATES, cache=tmp_path)
    assert len(encoder.calls) == 3
    other = LetterCounts("two")
    encode_classes(other, NAMES, TEMPLATES, cache=tmp_path)
    assert len(other.calls) == 1


@pytest.mark.parametrize("damage", ["cut", "flip", "empty", "folder"])
def test_a_damaged_cache_is_computed_again(damage: str, tmp_path: Path) -> None:
    """Whatever happened to the file, the features are right, and kept again where possible."""
    right = encode_classes(LetterCounts(), NAMES, TEMPLATES, cache=tmp_path)
    (file,) = (tmp_path / "text").iterdir()
    content = file.read_bytes()
    flipped = content[:-1] + bytes([content[-1] ^ 1])
    file.write_bytes({"cut": content[:-4], "flip": flipped}.get(damage, b""))
    if damage == "folder":
        file.unlink()
        file.mkdir()
    encoder = LetterCounts()
    for place in (tmp_path, file):  # a file where the folder should be means no cache
        features = encode_classes(encoder, NAMES, TEMPLATES, cache=place)
        np.testing.assert_array_equal(features, right)
    assert len(encoder.calls) == 2


def test_the_cache_stays_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond its room the files that were not used for longest go first."""
    size = 32 + 2 * 26 * 4
    monkeypatch.setattr(caching, "ROOM", 3 * size)
    features = np.ones((2, 26), np.float32)
    old, *_, new = files = [tmp_path / f"{name}.features" for name in ("old", "used", "3", "new")]
    for number, file in enumerate(files[:3]):
        caching.write_cached(file, features)
        os.utime(file, (number, number))
    assert caching.read_cached(old, (2, 26)) is not None  # and so it is not the oldest any more
    caching.write_cached(new, features)
    assert {path.stem for path in tmp_path.iterdir()} == {"old", "3", "new"}


def test_where_the_cache_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """CRG_CACHE comes first, then the platform's variable, then the home folder."""
    for variable in ("CRG_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(variable, raising=False)
    home = caching.default_folder()
    assert home is not None and home.name == "crg" and Path.home() in home.parents
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert caching.default_folder() == tmp_path / "crg"
    monkeypatch.setenv("CRG_CACHE", str(tmp_path / "mine"))
    assert caching.default_folder() == tmp_path / "mine"
    encode_classes(LetterCounts(), NAMES, TEMPLATES)
    assert len(list((tmp_path / "mine/text").iterdir())) == 1
