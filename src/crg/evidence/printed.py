"""What papers print for a row, and what they say where the number is not at hand."""

from __future__ import annotations

from crg.evaluate import BASELINE
from crg.outline import Outline, Row, Source
from crg.reported import Reported, reported, stated

_ONE_PROMPT = "zero_shot_one_prompt"


def printed_for(outline: Outline, source: Source, row: Row) -> Reported | None:
    """The number in the papers for this row on these pictures with this model, if there is one."""
    if not outline.reported or source.model is None:
        return None
    found = (
        reported(outline.reported, source.model, source.dataset, name)
        for name in _names(source, row)
    )
    return next((each for each in found if each is not None), None)


def said_of(outline: Outline, source: Source, row: Row) -> tuple[str, ...]:
    """Statements about this row on these pictures with this model."""
    if not outline.reported or source.model is None:
        return ()
    found = (
        statement
        for name in _names(source, row)
        for statement in stated(outline.reported, source.model, source.dataset, name)
    )
    return tuple(dict.fromkeys(found))


def _names(source: Source, row: Row) -> tuple[str, ...]:
    """What the row may be called there: by its label, or by its method as it comes.

    Papers print what they tuned per dataset, so a tuned row has the number of its method too.
    """
    if row.method == BASELINE and not row.options and len(source.prompts) == 1:
        return (row.label, _ONE_PROMPT) if row.label != BASELINE else (_ONE_PROMPT,)
    as_it_comes = not row.options or row.tuned
    return tuple(dict.fromkeys((row.label, row.method))) if as_it_comes else (row.label,)
