"""The numbers in README and docs are those of the archived results."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import check_numbers as checker
from check_numbers import WORDS, wrong_numbers
from documents import DOCUMENTS, ROOT

TITLES = r"^\|[^\n]*\n\| -[^\n]*"  # of tables
OTHERS = re.compile(
    rf"{checker.CODE.pattern}|{TITLES}|({checker.NUMBER.pattern})", re.DOTALL | re.MULTILINE
)


def another(number: str) -> str:
    """A number near this one, in letters if it is."""
    if number.lower() in WORDS:
        return "three" if number == "two" else WORDS[WORDS.index(number.lower()) - 1]
    if "." in number:
        return f"{float(number) + 1.37:.{len(number.partition('.')[2])}f}"
    return f"{int(number.replace(',', '')) + 1:,}"


@pytest.mark.parametrize(
    "document", checker.DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT))
)
def test_numbers_are_those_of_the_archived_results(document: Path) -> None:
    """Tables agree cell by cell, sentences with what they name; other numbers would be found."""
    text = document.read_text(encoding="utf-8")
    assert wrong_numbers(text) == []
    n_numbers = sum(bool(match[1]) for match in OTHERS.finditer(text))
    changed = OTHERS.sub(lambda match: another(match[1]) if match[1] else match[0], text)
    assert n_numbers > 10 and len(wrong_numbers(changed)) >= 0.98 * n_numbers


def test_sentences_with_computed_numbers_are_right_wherever_they_stand() -> None:
    """Every sentence of the checker is in a document, and a repetition elsewhere agrees, too."""
    texts = {path: path.read_text(encoding="utf-8") for path in DOCUMENTS}
    assert [path for path, text in texts.items() if checker.wrong_claims(text)] == []
    whole = "\n".join(texts.values())
    sentences = (*checker.CLAIMS, *checker.FACTS)
    assert [each for each in sentences if not checker.pattern(each).search(whole)] == []
