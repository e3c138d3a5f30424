"""Which figures an experiment has: ``Outline.figure`` names them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from crg.report.evidence.study import Study
from crg.report.markup import Figure
from crg.report.study_contrasts import (
    forest_figure,
    reliability_figure,
    waterfall_figure,
    worst_figure,
)
from crg.report.study_curves import (
    cold_start_figure,
    learning_figure,
    noise_figures,
    purity_figure,
    shots_figure,
    sweep_figure,
)

Maker = Callable[[Study, str], list[Figure]]

FIGURES: Mapping[str, tuple[Maker, ...]] = {
    "table": (forest_figure, learning_figure, reliability_figure),
    "learning": (cold_start_figure,),
    "cold_start": (cold_start_figure,),
    "purity": (purity_figure,),
    "waterfall": (waterfall_figure,),
    "sweep": (sweep_figure,),
    "heat": (),  # a table in colours
    "noise": (noise_figures,),
    "streams": (worst_figure,),
    "shots": (shots_figure,),
}


def figures_of(study: Study, source: str) -> list[Figure]:
    """The figures of one source; a name that is not known has those of a table."""
    makers = FIGURES.get(study.outline.figure, FIGURES["table"])
    return [each for make in makers for each in make(study, source)]
