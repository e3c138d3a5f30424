"""The design of an experiment: the content of its TOML file, before anything is looked up.

The file is read by msgspec, strictly. Errors are one sentence with the file, the table and the key.
"""

from __future__ import annotations

import contextlib
import os
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias, get_args

import msgspec
from msgspec import Meta, Struct, field
from msgspec.structs import replace

from crg.datasets.catalog import get_entry
from crg.methods.options import parse_options
from crg.methods.registry import BASELINE, list_methods, typed_options
from crg.presets import presets_of
from crg.results.papers import bundled_papers
from crg.results.schema import ENOUGH_ORDERS, Setting
from crg.suggest import nearest
from crg.types import InputError

Figure: TypeAlias = Literal["table", "learning", "purity", "waterfall", "sweep", "noise", "streams",
                            "cold_start", "shots"]  # fmt: skip
PUBLISHED = "published"
Count: TypeAlias = Annotated[int, Meta(ge=1)]
CountOrNone: TypeAlias = Annotated[int, Meta(ge=0)]
Names: TypeAlias = Annotated[tuple[str, ...], Meta(min_length=1)]


class DesignTable(Struct, frozen=True, forbid_unknown_fields=True):
    """A table of the file: every key is known, and nothing changes once it is read."""


class RowDesign(DesignTable, frozen=True):
    """``[[row]]``: a method with options; a ``preset`` makes it a tuned one."""

    method: str
    label: str = ""  # by default the method
    options: dict[str, Any] = {}
    preset: Literal["none", "published"] = "none"  # what the authors chose for single datasets
    tuned: bool = False  # its options were chosen with labels
    several_views: bool = False  # runs only where images have more than one view
    passes: Literal[1, 2] = 1  # 2: offline, it answers when it has seen all images
    x: float | None = None  # its place in figures that show rows against a number
    series: str = ""

    @property
    def is_tuned(self) -> bool:
        """Whether labels had a part in its options."""
        return self.tuned or self.preset == PUBLISHED

    @property
    def is_baseline(self) -> bool:
        """Whether it is plain zero-shot, which all others are compared with."""
        return self.method == BASELINE and not self.options and self.passes == 1


class DataDesign(DesignTable, frozen=True):
    """``[[data]]``: stores of catalogued datasets, rendered shapes, or files that are named."""

    datasets: Names | None = None
    models: Names = ()
    shapes: Names | None = None  # names of shifts
    severity: Count = 3
    images: Count = 480
    views: Count = 8
    shots: CountOrNone = 0  # labelled images per class, for the methods that need some
    generated: CountOrNone = 0  # further views that stand in for generated ones
    all_names: bool = False  # the classes are all names that shapes have, present or not
    files: bool | Names = False  # all that are named, or those of these names; joined together


KEYS_OF_DATA = {
    "datasets": {"datasets", "models"},
    "shapes": {"shapes", "severity", "images", "views", "shots", "generated", "all_names"},
    "files": {"files"},
}


class Quick(DesignTable, frozen=True):
    """``[quick]``: what the reduced form changes; None changes nothing."""

    orders: Count | None = None
    shapes: Names | None = None
    images: Count | None = None  # rendered
    views: Count | None = None
    generated: CountOrNone | None = None
    at_most: Count | None = None  # images of a file or store that are used


class Design(DesignTable, frozen=True):
    """An experiment: methods on datasets, in settings and stream orders."""

    name: str = ""  # by default that of the file
    title: str = ""
    about: str = ""
    figure: Figure = "table"
    rows: tuple[RowDesign, ...] = field(name="row", default=())
    settings: tuple[Setting, ...] = field(name="setting", default=())
    data: tuple[DataDesign, ...] = ()
    quick: Quick | None = Quick()  # None in the quick form itself
    reported: str = ""
    orders: Count = ENOUGH_ORDERS
    x_title: str = ""
    memory: bool = False
    gallery: bool = False

    def reduced(self) -> Design:
        """The quick form."""
        quick = self.quick or Quick()
        named = ("shapes", "images", "views", "generated")
        asked = {name: value for name in named if (value := getattr(quick, name)) is not None}
        settings = [
            replace(each, images=min(filter(None, (each.images, quick.at_most)), default=None))
            for each in self.settings
        ]
        return replace(
            self,
            data=tuple(replace(each, **asked) if each.shapes else each for each in self.data),
            settings=tuple(settings),
            orders=quick.orders or self.orders,
            quick=None,
        )

    def wants(self, order: str) -> bool:
        """Whether some setting has this order."""
        return any(setting.order == order for setting in self.settings)


def read_design(path: str | os.PathLike[str]) -> Design:
    """The experiment of a file; every mistake is refused before anything is run."""
    file = Path(path)
    raw = _parsed(file)
    try:
        design = msgspec.convert(raw, Design)
    except msgspec.ValidationError as error:
        raise InputError(f"{file}{_sentence(str(error))}") from None
    for number, table in enumerate(raw.get("data", ()), start=1):
        with _at(file, f"data {number}"):
            _check_keys_of_data(table)
    name = design.name or file.stem
    return completed(replace(design, name=name, title=design.title or name), file)


def read_as_asked(
    path: Path, quick: bool, orders: int | None, methods: Sequence[str]
) -> tuple[Design, set[str]]:
    """The design of a file with these options, and the labels of the rows to run."""
    design = read_design(path)
    design = design.reduced() if quick else design
    chosen = {row.label for row in design.rows}
    if methods:
        design, chosen = with_methods(design, parse_methods(methods))
    return replace(design, orders=orders or design.orders), chosen


def completed(design: Design, file: Path | None = None) -> Design:
    """The design with what may be left out filled in; a mistake is refused with its place."""
    rows = [replace(row, label=row.label.strip() or row.method) for row in design.rows]
    settings = [
        replace(each, label=each.label.strip() or each.order)
        for each in design.settings or (Setting(),)
    ]
    for number, row in enumerate(rows, start=1):
        with _at(file, f"row {number} ({row.label!r})"):
            _check_row(row)
    for number, setting in enumerate(settings, start=1):
        with _at(file, f"setting {number} ({setting.label!r})"):
            setting.scenario  # noqa: B018
    data = []
    for number, each in enumerate(design.data, start=1):
        with _at(file, f"data {number}"):
            data.append(_checked_data(each))
    if not any(row.is_baseline for row in rows):
        rows.insert(0, RowDesign(BASELINE, BASELINE))
    design = replace(
        design,
        about=" ".join(design.about.split()),
        rows=tuple(rows),
        settings=tuple(settings),
        data=tuple(data),
    )
    with _at(file, "[quick]"):
        _check_shifts((design.quick and design.quick.shapes) or (), 1)
    with _at(file):
        _check_whole(design)
        _check_figure(design)
    return design


def parse_methods(texts: Iterable[str]) -> list[RowDesign]:
    """The methods of lists that are separated by commas, as rows.

    ``label=crg:negative=false,gaussian=false`` is CRG with options under another label: a part
    ``key=value`` belongs to the variant before it, unless the value is the name of a method. No
    character is special to a shell.
    """
    variants = [_variant(group) for text in texts for group in _grouped(text)]
    if not variants:
        raise InputError("No method is named: give --methods a list such as zero_shot,crg.")
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


def _variant(group: list[str]) -> RowDesign:
    """``label=method:key=value`` with any of label and options left out."""
    head, _, first_option = group[0].partition(":")
    label, equals, method = head.partition("=")
    if not equals:
        method, label = head, ",".join(group).rstrip(":")
    if not (label and method):
        raise InputError(f"{','.join(group)!r} names no method: write label=method:key=value.")
    options = parse_options([part for part in (first_option, *group[1:]) if part])
    return RowDesign(method, label, options)


def with_methods(design: Design, asked: Sequence[RowDesign]) -> tuple[Design, set[str]]:
    """The design with a row for each method that it does not name, and the labels asked for.

    A method without options stands for the row of this label, or else for all rows of it.
    """
    labels = {row.label for row in design.rows if row.is_baseline}
    new: list[RowDesign] = []
    for each in asked:
        is_plain = not each.options and each.label == each.method
        known = [row.label for row in design.rows if is_plain and row.label == each.label]
        known = known or [r.label for r in design.rows if is_plain and r.method == each.method]
        labels |= {*known} or {each.label}
        new += [] if known else [each]
    return completed(replace(design, rows=(*design.rows, *new))), labels


@contextlib.contextmanager
def _at(file: Path | None, place: str = "") -> Iterator[None]:
    """Put file and table in front of a refusal."""
    try:
        yield
    except InputError as error:
        where = ", ".join(part for part in (file and str(file), file and place) if part)
        raise InputError(f"{where}: {error}" if where else str(error)) from None


def _parsed(file: Path) -> dict[str, Any]:
    try:
        with file.open("rb") as content:
            return tomllib.load(content)
    except FileNotFoundError:
        raise InputError(f"{file} does not exist: name the TOML file of an experiment.") from None
    except OSError as error:
        raise InputError(f"{file} cannot be read ({error.strerror}): check the path.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        twice = re.search(r"\('(row|setting|data)',\) twice", str(error))
        remedy = f"write [[{twice[1]}]] above each of them" if twice else "correct it there"
        raise InputError(f"{file} is not TOML ({error}): {remedy}.") from None


_TABLES = {"row": RowDesign, "setting": Setting, "data": DataDesign, "quick": Quick}
_CHOICES = {"figure": get_args(Figure), "passes": ("1", "2"), "preset": ("none", PUBLISHED)}


def _sentence(error: str) -> str:
    """A complaint of msgspec as one sentence: place, reason and remedy.

    >>> _sentence("Expected `float`, got `str` - at `$.row[0].x`")
    ', row 1.x: expected `float`, got `str`: correct it there.'
    """
    complaint, _, path = error.partition(" - at `$.")
    path = re.sub(r"\[(\d+)\]", lambda found: f" {int(found[1]) + 1}", path.rstrip("`"))
    table, key = re.split(r"\W", path)[0], path.rpartition(".")[2]
    place, reason = f", {path}" if path else "", f"{complaint[0].lower()}{complaint[1:]}"
    if unknown := re.match(r"Object contains unknown field `(.*)`", complaint):
        kind: Any = _TABLES.get(table, Design)
        known = [each.encode_name for each in msgspec.structs.fields(kind)]
        return f"{place}: there is no key {unknown[1]!r}: {nearest(unknown[1], known)}"
    if re.fullmatch(r"(row|setting|data)( \d+)?", path) and complaint.startswith("Expected"):
        return f"{place}: {reason}: write [[{table}]] above each of them."
    remedy = f"choose one of {', '.join(_CHOICES[key])}" if key in _CHOICES else "correct it there"
    return f"{place}: {reason}: {remedy}."


def _check_keys_of_data(table: Mapping[str, Any]) -> None:
    kinds = [key for key in KEYS_OF_DATA if key in table]
    if len(kinds) != 1:
        named = " and ".join(kinds) or "nothing"
        raise InputError(f"it asks for {named}: give one of datasets, shapes and files.")
    for key in table.keys() - KEYS_OF_DATA[kinds[0]]:
        known = nearest(key, KEYS_OF_DATA[kinds[0]])
        raise InputError(f"there is no key {key!r} beside {kinds[0]}: {known}")


def _check_row(row: RowDesign) -> None:
    if row.label == BASELINE and not row.is_baseline:
        raise InputError(f"{BASELINE} is the label of plain zero-shot: give another label.")
    typed_options(row.method, row.options)
    if row.preset == PUBLISHED and not presets_of(row.method):
        raise InputError(f"{row.method} has no published preset: leave the preset out.")


def _checked_data(data: DataDesign) -> DataDesign:
    if data.shapes is not None:
        _check_shifts(data.shapes, data.severity)
    if data.datasets is not None:
        data = replace(data, datasets=tuple(get_entry(name).name for name in data.datasets))
        if not data.models:
            raise InputError(
                'models is missing: name those that encoded the stores, such as ["RN50"].'
            )
    elif data.shapes is None and not data.files:
        raise InputError("files is false: leave the table out.")
    return data


def _check_shifts(shifts: Sequence[str], severity: int) -> None:
    if not shifts:
        return
    from crg.shapes import CLEAN
    from crg.shapes.shifts import check_shift

    for shift in shifts:
        check_shift(None if shift == CLEAN else shift, severity)


def _check_whole(design: Design) -> None:
    """Refuse mistakes that show only when all tables are read."""
    for kind, tables in (("rows", design.rows), ("settings", design.settings)):
        labels = [each.label for each in tables]
        if twice := sorted({label for label in labels if labels.count(label) > 1}):
            raise InputError(f"two {kind} are called {twice[0]!r}: give one another label.")
    if not design.data:
        raise InputError("it names no data: write [[data]] with datasets, shapes or files.")
    if any(part in design.name for part in "/\\:"):
        raise InputError(f"name is {design.name!r}: choose one without slashes and colons.")
    known = bundled_papers().experiments
    if design.reported and design.reported not in known:
        hint = nearest(design.reported, known)
        raise InputError(f"reported is {design.reported!r}: {hint}")


def _check_figure(design: Design) -> None:
    places = [row.x for row in design.rows if row.x is not None]
    needs = {
        "sweep": ("x in the rows that it shows", bool(places)),
        "shots": ("x above 0 in the rows that it shows", min(places, default=0) > 0),
        "noise": ("x in every setting", all(each.x is not None for each in design.settings)),
    }
    need, is_met = needs.get(design.figure, ("", True))
    if not is_met:
        raise InputError(f"figure is {design.figure!r}: it needs {need}, or choose another figure.")
