"""Class names and templates or descriptions become text features, and these a Task.

As usual, every prompt of a class is encoded and scaled to unit length, the prompts are averaged,
and the average is scaled to unit length again. Descriptions are sentences about each class in
CuPL's form, {"class name": ["sentence", ...]}; names match whatever their case, and an
underscore is a space.

Text features are cached on disk under a hash of the encoder and the prompts, each file with its
own checksum. Files that cannot be read are computed again, and the files stay below ``ROOM``.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from itertools import chain, count
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np

from crg.atomic import replacing
from crg.encoders.base import Encoder, GivenText, Vectors, name_key
from crg.extras import first_line
from crg.types import InputError, Task, listed, parsed_json, unit_rows

Descriptions: TypeAlias = Mapping[str, Sequence[str]] | str | os.PathLike[str]
Cache: TypeAlias = Path | Literal["default"] | None
PHOTO = "a photo of a {}."  # the template for classes of which nothing more is known
ROOM = 200_000_000  # bytes of the cache
_BATCH = 256  # sentences that the encoder is given at a time
_VERSION = 1  # raised when the same prompts would give other features
_DIGEST = hashlib.sha256().digest_size


def encode_classes(
    encoder: Encoder,
    class_names: Sequence[str],
    templates: Sequence[str] = (),
    descriptions: Descriptions | None = None,
    cache: Cache = "default",
    on_note: Callable[[str], None] | None = None,
) -> Vectors:
    """Text features (K, D) of unit length, one row per class.

    Templates and descriptions are used as far as they are given, with equal weight for each prompt;
    without either, the template is ``PHOTO``. ``cache`` is a folder, "default" or None for no
    cache. ``on_note`` receives warnings, one sentence each.
    """
    if isinstance(encoder, GivenText):
        return encoder.class_features(class_names)
    prompts = class_prompts(class_names, templates, descriptions, on_note)
    folder = default_folder() if cache == "default" else cache
    if folder is None:
        return _averaged(encoder, prompts)
    content = json.dumps([_VERSION, encoder.fingerprint, prompts])
    file = Path(folder, "text", f"{hashlib.sha256(content.encode()).hexdigest()}.features")
    features = read_cached(file, (len(prompts), encoder.width))
    if features is None:
        features = _averaged(encoder, prompts)
        write_cached(file, features)
    return features


def make_task(
    encoder: Encoder,
    class_names: Sequence[str],
    templates: Sequence[str] = (),
    descriptions: Descriptions | None = None,
    cache: Cache = "default",
    on_note: Callable[[str], None] | None = None,
) -> Task:
    """The task of classifying into these classes, with the encoder's logit scale.

    Names that occur more than once ("missile" is two classes of ImageNet) are numbered in the
    task; their prompts are the same.
    """
    names = distinct_names(class_names)
    if names != tuple(class_names) and on_note is not None:
        new = ", ".join(name for name, old in zip(names, class_names, strict=True) if name != old)
        on_note(f"Some class names occur more than once and were numbered: {new}.")
    text = encode_classes(encoder, class_names, templates, descriptions, cache, on_note)
    return Task(names, text, encoder.logit_scale)


def class_prompts(
    class_names: Sequence[str],
    templates: Sequence[str] = (),
    descriptions: Descriptions | None = None,
    on_note: Callable[[str], None] | None = None,
) -> list[list[str]]:
    """The prompts of each class, in the order of the classes.

    >>> class_prompts(["sea_lion", "fox"], ["a photo of a {}.", "art of the {}."])[0]
    ['a photo of a sea lion.', 'art of the sea lion.']
    """
    check_names(class_names)
    if isinstance(templates, str):
        raise InputError(f"The templates are one text, {templates!r}: give a list of templates.")
    templates = templates or ([PHOTO] if descriptions is None else [])
    for template in templates:
        check_template(template)
    prompts = [[each.replace("{}", plain(name)) for each in templates] for name in class_names]
    if descriptions is not None:
        more = _described(class_names, descriptions, on_note)
        prompts = [[*few, *others] for few, others in zip(prompts, more, strict=True)]
    return prompts


def check_template(template: str) -> None:
    """Refuse a template without exactly one place for the class name."""
    if (n := str(template).count("{}")) != 1:
        raise InputError(
            f"The template {template!r} has {n} places for the class "
            "name: write {} exactly once, as in 'a photo of a {}.'."
        )


def distinct_names(class_names: Sequence[str]) -> tuple[str, ...]:
    """The names with " (2)", " (3)" ... after those that occurred before.

    >>> distinct_names(["missile", "fox", "missile"])
    ('missile', 'fox', 'missile (2)')
    """
    names: dict[str, None] = {}  # a set that keeps the order
    for name in class_names:
        numbered = (f"{name} ({number})" for number in count(2))
        names[next(each for each in chain([name], numbered) if each not in names)] = None
    return tuple(names)


def _averaged(encoder: Encoder, prompts: list[list[str]]) -> Vectors:
    """Normalise each prompt, average over the class, normalise."""
    texts = list(dict.fromkeys(chain.from_iterable(prompts)))
    place = {text: i for i, text in enumerate(texts)}
    starts = range(0, len(texts), _BATCH)
    batches = [encoder.encode_texts(texts[start : start + _BATCH]) for start in starts]
    rows = unit_rows(np.concatenate(batches).astype(np.float64), "encoded prompts")
    means = [rows[[place[text] for text in few]].mean(axis=0) for few in prompts]
    return np.asarray(unit_rows(np.stack(means), "text features"), np.float32)


def check_names(class_names: Sequence[str]) -> None:
    """Refuse class names that are no list of texts, or empty."""
    if isinstance(class_names, str) or not hasattr(class_names, "__len__"):
        kind = "one text" if isinstance(class_names, str) else "no list"
        raise InputError(f"The class names are {kind}, {class_names!r}: give a list of names.")
    if len(class_names) == 0:
        raise InputError("There are no class names: give at least two (in commands: --classes).")
    for name in class_names:
        if not isinstance(name, str):
            raise InputError(f"The class name {name!r} is no text: give every name as text.")
        if any("\ud800" <= letter <= "\udfff" for letter in name):  # bytes that are no letters
            raise InputError(f"The class name {name!r} is not UTF-8: write it in that encoding.")
    if not all(plain(name) for name in class_names):
        raise InputError("A class name is empty: name every class.")


def read_descriptions(path: str | os.PathLike[str]) -> dict[str, list[str]]:
    """The sentences of each class from a JSON file."""
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
        content = parsed_json(text, _without_repeats)
    except (OSError, ValueError) as error:
        raise InputError(
            f"{path} is not a file of descriptions ({first_line(error)}): "
            'write JSON such as {"class name": ["sentence", ...]}.'
        ) from None
    _check_content(content, str(path))
    return {str(name): list(sentences) for name, sentences in content.items()}


def _described(
    class_names: Sequence[str],
    descriptions: Descriptions,
    on_note: Callable[[str], None] | None = None,
) -> list[list[str]]:
    """The sentences of each class; missing classes are refused, extra ones reported."""
    if isinstance(descriptions, Mapping):
        _check_content(descriptions, "The mapping")
    else:
        descriptions = read_descriptions(descriptions)
    sentences: dict[str, Sequence[str]] = {}
    for name, some in descriptions.items():
        if sentences.setdefault(name_key(name), some) is not some:
            raise InputError(f"The descriptions name {name!r} twice: keep one of the two.")
    wanted = {name_key(name): name for name in class_names}
    missing = [name for key, name in wanted.items() if key not in sentences]
    if missing:
        raise InputError(
            f"The descriptions lack {_counted(missing)} ({listed(missing)}): "
            "add them or choose the prompts 'template'."
        )
    extra = [name for name in descriptions if name_key(name) not in wanted]
    if extra and on_note is not None:
        on_note(f"The descriptions of {_counted(extra)} are not used: {listed(extra)}.")
    return [list(sentences[name_key(name)]) for name in class_names]


def plain(name: str) -> str:
    """A class name as it stands in a prompt.

    >>> plain("sea_lion")
    'sea lion'
    """
    return " ".join(name.replace("_", " ").split())


def _counted(names: Sequence[str]) -> str:
    return "1 class" if len(names) == 1 else f"{len(names)} classes"


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content: dict[str, Any] = {}
    for name, value in pairs:
        if content.setdefault(name, value) is not value:
            raise ValueError(f"{name!r} occurs twice")
    return content


def _check_content(content: Any, where: str) -> None:
    form = 'write {"class name": ["sentence", ...]}.'
    if not isinstance(content, Mapping) or not content:
        raise InputError(f"{where} holds no descriptions: {form}")
    for name, sentences in content.items():
        if isinstance(sentences, str) or not isinstance(sentences, Sequence) or not sentences:
            raise InputError(f"{where} has no list of sentences for {name!r}: {form}")
        if not all(isinstance(each, str) and each.strip() for each in sentences):
            raise InputError(f"{where} has an empty or odd sentence for {name!r}: {form}")


def default_folder() -> Path | None:
    """$CRG_CACHE, or crg in the user's folder for caches; None if there is no home."""
    chosen, base = os.environ.get("CRG_CACHE"), os.environ.get("XDG_CACHE_HOME")
    try:
        return Path(chosen) if chosen else Path(base or Path.home() / ".cache") / "crg"
    except RuntimeError:
        return None


def read_cached(file: Path, shape: tuple[int, int]) -> Vectors | None:
    """The features in a file of the cache, or None if missing, damaged or of another shape."""
    try:
        content = file.read_bytes()
    except OSError:
        return None
    digest, values = content[:_DIGEST], content[_DIGEST:]
    if hashlib.sha256(values).digest() != digest or len(values) != 4 * shape[0] * shape[1]:
        return None
    with contextlib.suppress(OSError):
        os.utime(file)
    return np.frombuffer(values, dtype="<f4").reshape(shape).astype(np.float32)


def write_cached(file: Path, features: Vectors) -> None:
    """Write the features, if possible; files that were not used for longest make room."""
    values = np.ascontiguousarray(features, dtype="<f4").tobytes()
    with contextlib.suppress(OSError, InputError):
        file.parent.mkdir(parents=True, exist_ok=True)
        with replacing(file) as partial:
            partial.write_bytes(hashlib.sha256(values).digest() + values)
        files = sorted(file.parent.glob("*.features"), key=lambda each: each.stat().st_mtime)
        total = sum(each.stat().st_size for each in files)
        while total > ROOM and len(files) > 1:
            oldest = files.pop(0)
            total -= oldest.stat().st_size
            oldest.unlink()
