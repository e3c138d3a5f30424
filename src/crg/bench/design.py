"""Design: what the file of an experiment asks for, before anything is looked up or rendered."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from crg.results.outline import ENOUGH_ORDERS, Setting
from crg.streams.scenario import Scenario

FIGURES = (
    *("table", "learning", "purity", "waterfall", "sweep"),
    *("heat", "noise", "streams", "cold_start", "shots"),
)
DOMAINS = "domains"  # the order that needs several files


@dataclass(frozen=True)
class RowRequest:
    """A row of the tables; ``published`` and ``per_dataset`` make it one that is tuned."""

    label: str
    method: str
    options: Mapping[str, Any] = field(default_factory=dict)
    published: bool = False  # the options that the authors chose for single datasets
    per_dataset: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    tuned_by_hand: bool = False
    several_views: bool = False  # runs only where images have more than one view
    about: str = ""
    x: float | None = None  # its place in figures that show rows against a number
    series: str = ""
    against: str = ""  # label of the row that its losses are held against

    @property
    def tuned(self) -> bool:
        """Whether labels had a part in its options."""
        return self.tuned_by_hand or self.published or bool(self.per_dataset)


@dataclass(frozen=True)
class SettingRequest:
    """A scenario under a name."""

    label: str
    scenario: Scenario = field(default_factory=Scenario)
    x: float | None = None

    @property
    def is_domains(self) -> bool:
        """Whether it needs files that come one after the other."""
        return self.scenario.order == DOMAINS

    def as_setting(self) -> Setting:
        """As the outline has it."""
        return Setting(self.label, self.scenario)


@dataclass(frozen=True)
class CatalogueRequest:
    """Stores of catalogued datasets, each encoded with each of the models."""

    datasets: tuple[str, ...]
    models: tuple[str, ...]


@dataclass(frozen=True)
class ShapesRequest:
    """Rendered shapes, encoded with the bundled model."""

    shifts: tuple[str, ...]
    severity: int = 3
    images: int = 480
    views: int = 8
    shots: int = 0  # labelled images per class, for the methods that need some
    generated: int = 0  # further views that stand in for generated ones


@dataclass(frozen=True)
class FilesRequest:
    """Every further feature file or store that was named."""


DataRequest: TypeAlias = CatalogueRequest | ShapesRequest | FilesRequest


@dataclass(frozen=True)
class Quick:
    """What the reduced form changes; None changes nothing."""

    orders: int | None = None
    shifts: tuple[str, ...] | None = None
    images: int | None = None  # rendered
    views: int | None = None
    shots: int | None = None
    generated: int | None = None
    at_most: int | None = None  # images of a file or store that are used


@dataclass(frozen=True)
class Design:
    """An experiment as its file has it."""

    name: str
    title: str
    about: str
    figure: str
    rows: tuple[RowRequest, ...]
    settings: tuple[SettingRequest, ...]
    data: tuple[DataRequest, ...]
    quick: Quick = Quick()
    reported: str = ""
    orders: int = ENOUGH_ORDERS
    x_title: str = ""
    measures_memory: bool = False
    has_gallery: bool = False
    is_quick: bool = False

    def reduced(self) -> Design:
        """The quick form."""
        quick = self.quick
        return replace(
            self,
            data=tuple(_reduced(each, quick) for each in self.data),
            settings=tuple(_with_fewer(each, quick.at_most) for each in self.settings),
            orders=quick.orders or self.orders,
            is_quick=True,
        )

    @property
    def wants_domains(self) -> bool:
        """Whether some setting needs files that come one after the other."""
        return any(setting.is_domains for setting in self.settings)


def _reduced(request: DataRequest, quick: Quick) -> DataRequest:
    if not isinstance(request, ShapesRequest):
        return request
    shifts = quick.shifts or request.shifts
    asked = {"images": quick.images, "views": quick.views, "shots": quick.shots}
    changes: dict[str, Any] = {**asked, "generated": quick.generated}
    given = {name: value for name, value in changes.items() if value is not None}
    return replace(request, shifts=shifts, **given)


def _with_fewer(setting: SettingRequest, at_most: int | None) -> SettingRequest:
    if at_most is None or setting.scenario.images is not None:
        return setting
    return replace(setting, scenario=replace(setting.scenario, images=at_most))
