"""What ``--methods`` and ``-o METHOD.key=value`` of ``crg compare`` mean.

A list of methods is separated by commas. ``label=crg:negative=false,gaussian=false`` is CRG
with options under a label of its own: a part ``key=value`` belongs to the variant before it,
unless the value is the name of a method. No character is special to a shell.
"""

from __future__ import annotations

from collections.abc import Iterable

from crg.cli.shared import parse_options
from crg.grid import Variant
from crg.methods.options import nearest
from crg.methods.registry import list_methods
from crg.types import InputError


def parse_variants(texts: Iterable[str], pairs: Iterable[str] = ()) -> list[Variant]:
    """The variants that are asked for, with ``METHOD.key=value`` options applied."""
    variants = [_variant(group) for text in texts for group in _grouped(text)]
    if not variants:
        raise InputError("No method is named: give --methods a list such as zero_shot,crg.")
    for target, key, value in map(_split_pair, pairs):
        variants = _with_option(variants, target, key, value)
    return variants


def _grouped(text: str) -> list[list[str]]:
    """Parts of the list, each with the option parts that belong to it."""
    groups: list[list[str]] = []
    for part in (piece.strip() for piece in text.split(",")):
        value = part.partition("=")[2]
        continues = bool(value) and ":" not in part and value not in list_methods()
        if continues and groups and ":" in groups[-1][0]:
            groups[-1].append(part)
        elif part:
            groups.append([part])
    return groups


def _variant(group: list[str]) -> Variant:
    """``label=method:key=value`` with any of label and options left out."""
    head, _, first_option = group[0].partition(":")
    label, equals, method = head.partition("=")
    if not equals:
        method, label = head, ",".join(group).rstrip(":")
    if not (label and method):
        raise InputError(f"{','.join(group)!r} names no method: write label=method:key=value.")
    options = parse_options([part for part in (first_option, *group[1:]) if part])
    return Variant(label, method, options)


def _split_pair(pair: str) -> tuple[str, str, str]:
    [(name, value)] = parse_options([pair]).items()
    target, dot, key = name.rpartition(".")
    if not (dot and target and key):
        raise InputError(
            f"{pair!r} does not say which method it is for: write METHOD.key=value, "
            f"for example crg.{name}={value}."
        )
    return target, key, value


def _with_option(variants: list[Variant], target: str, key: str, value: str) -> list[Variant]:
    """Set an option of the variant labelled ``target``, or of all variants of that method.

    What a variant sets for itself stays: it is the more particular wish.
    """
    chosen = [v for v in variants if v.label == target] or [
        v for v in variants if v.method == target
    ]
    if not chosen:
        known = {name for v in variants for name in (v.label, v.method)}
        raise InputError(
            f"-o {target}.{key} is for {target!r}, which is not compared: {nearest(target, known)}"
        )
    return [
        Variant(v.label, v.method, {key: value, **v.options} if v in chosen else v.options)
        for v in variants
    ]
