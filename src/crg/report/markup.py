"""Pieces of a page: tables that can be sorted, and figures with their data behind a link."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from urllib.parse import quote


@dataclass(frozen=True)
class Cell:
    """One place in a table; ``value`` is what the column is sorted by, None goes last."""

    html: str
    value: float | str | None = None
    css: str = ""
    style: str = ""
    span: int = 1


@dataclass(frozen=True)
class Column:
    """A head; ``rises`` if the first click puts the lowest on top."""

    title: str
    tip: str = ""
    rises: bool = False
    below: str = ""  # in small letters under the title


@dataclass(frozen=True)
class Entry:
    """A row of a table."""

    head: Cell
    cells: tuple[Cell, ...]
    css: str = ""


@dataclass(frozen=True)
class Figure:
    """Images with one caption and the numbers that they were drawn from."""

    name: str  # of the file that its data is saved as
    images: tuple[str, ...]
    caption: str
    header: tuple[str, ...]
    data: tuple[tuple[str | float | int, ...], ...]
    css: str = ""


def table(
    columns: Sequence[Column], entries: Iterable[Entry], css: str = "", last: Iterable[Entry] = ()
) -> str:
    """A table that a script lets the reader sort; without scripts it is as it was given.

    ``last`` are rows that stay at the bottom however it is sorted, such as means.
    """
    head = "".join(
        f"<th scope='col'{_attribute('title', each.tip)}"
        f"{' data-rises' if each.rises else ''}>{_title(each)}</th>"
        for each in columns
    )
    body, foot = ("".join(map(_entry, each)) for each in (entries, last))
    foot = f"<tfoot>{foot}</tfoot>" if foot else ""
    return (
        f"<div class='wide' tabindex='0'><table class='{f'sortable {css}'.strip()}'>"
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody>{foot}</table></div>"
    )


def footnotes(notes: Iterable[str]) -> str:
    """Numbered notes below a table; nothing where there are none."""
    items = "".join(f"<li>{escape(note)}</li>" for note in notes)
    return f"<ol class='notes'>{items}</ol>" if items else ""


def figure(shown: Figure) -> str:
    """The images, what they show, and their data."""
    return (
        f"<figure class='{f'chart {shown.css}'.strip()}'>"
        f"<div class='images' tabindex='0'>{''.join(shown.images)}</div>"
        f"<figcaption>{escape(shown.caption)} {data_link(shown)}</figcaption></figure>"
    )


def data_link(shown: Figure) -> str:
    """A link that saves the numbers of a figure."""
    lines = [",".join(map(_field, row)) for row in (shown.header, *shown.data)]
    data = quote("\n".join(lines) + "\n", safe=",.:+-()/= ").replace(" ", "%20")
    return (
        f"<a class='data' download='{slug(shown.name)}.csv' "
        f"href='data:text/csv;charset=utf-8,{data}'>data (CSV)</a>"
    )


def slug(text: str) -> str:
    """A text as a file or an anchor is named.

    >>> slug("ImageNet-V2, RN50")
    'imagenet-v2-rn50'
    """
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def listing(items: Iterable[str], css: str = "") -> str:
    """A list of sentences; nothing if there are none."""
    points = "".join(f"<li>{escape(item)}</li>" for item in items)
    return f"<ul{_attribute('class', css)}>{points}</ul>" if points else ""


def paragraph(text: str, css: str = "") -> str:
    """A paragraph; nothing if there is nothing to say."""
    return f"<p{_attribute('class', css)}>{escape(text)}</p>" if text else ""


def folded(summary: str, content: str, css: str = "", is_open: bool = False) -> str:
    """Content behind a line of markup that opens it."""
    return (
        f"<details{_attribute('class', css)}{' open' if is_open else ''}>"
        f"<summary>{summary}</summary>{content}</details>"
    )


def _entry(shown: Entry) -> str:
    cells = "".join(_cell("td", cell) for cell in shown.cells)
    return f"<tr{_attribute('class', shown.css)}>{_cell('th', shown.head)}{cells}</tr>"


def _cell(tag: str, cell: Cell) -> str:
    scope = " scope='row'" if tag == "th" else ""
    value = "" if cell.value is None else _plain(cell.value)
    return (
        f"<{tag}{scope}{_attribute('class', cell.css)}{_attribute('data-v', value)}"
        f"{_attribute('style', cell.style)}"
        f"{f' colspan={cell.span}' if cell.span > 1 else ''}>{cell.html}</{tag}>"
    )


def _title(column: Column) -> str:
    small = f"<br><small>{escape(column.below)}</small>" if column.below else ""
    return f"{escape(column.title)}{small}"


def _attribute(name: str, value: str) -> str:
    return f" {name}='{escape(value, quote=True)}'" if value else ""


def _field(value: str | float | int) -> str:
    """A field of a CSV file."""
    text = _plain(value)
    return '"' + text.replace('"', '""') + '"' if re.search(r'[",\n]', text) else text


def _plain(value: str | float | int) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
