"""Tables in Markdown from what was measured: goals first, then everything."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import contenders as c

BEGIN, END = "<!-- bench:begin -->", "<!-- bench:end -->"
FASTER, OVER_TDA, OVER_LEAST, GROWTH, AGREEMENT = 50.0, 6.0, 15.0, 12.0, 1e-3
# "As much as", with room for the noise of the clock, for malloc, and for the ids of images
# that fill the last places.
LATER, MEMORY, STATE = 1.2, 1.05, 1.001
Record = dict[str, Any]


@dataclass(frozen=True)
class Goal:
    """One line of the first table; ``met`` is None where there is no bar."""

    text: str
    measured: str
    met: bool | None

    def cells(self) -> list[str]:
        """The line."""
        return [self.text, self.measured, {True: "yes", False: "**no**", None: "-"}[self.met]]


class Results:
    """What the benchmark measured, by threads and size."""

    def __init__(self, record: Record) -> None:
        self.record = record
        self.threads = sorted(record["cases"], key=int)
        self.classes = sorted({case["size"]["n_classes"] for case in self.cases(self.threads[0])})
        self.middle, self.largest = self.classes[-2:]

    def cases(self, threads: str, n_views: int | None = None) -> list[Record]:
        """All sizes, or those of so many views."""
        cases: list[Record] = self.record["cases"][threads]
        return [x for x in cases if n_views in (None, x["size"]["n_views"])]

    def at(self, threads: str, n_classes: int, n_views: int | None = None) -> list[Record]:
        """The sizes of so many classes."""
        return [x for x in self.cases(threads, n_views) if x["size"]["n_classes"] == n_classes]


def median(case: Record, name: str = c.CRG) -> float:
    """Milliseconds per step of one contender."""
    return float(case["contenders"][name]["median"])


def goals(results: Results) -> list[Goal]:
    """Every goal beside what was measured."""
    per_thread = [goal for threads in results.threads for goal in _speed_goals(results, threads)]
    return [*per_thread, _growth(results), *_lasting(results), _agreement(results), _aim(results)]


def _speed_goals(results: Results, threads: str) -> Iterable[Goal]:
    on, middle, largest = _on(threads), results.middle, results.largest
    everywhere, at_middle = results.cases(threads), results.at(threads, middle)
    at_largest = results.at(threads, largest)
    yield _goal(f"{on}: CRG, plain form / CRG, at least {FASTER:g}", everywhere, c.ORACLE, c.CRG,
                lambda ratio: ratio >= FASTER)  # fmt: skip
    yield _at_most(f"{on}: CRG on torch tensors / plain form", 1, everywhere, c.TORCH, c.ORACLE)
    yield _at_most(f"{on}, K = {middle}: CRG / TDA", OVER_TDA, at_middle, c.CRG, c.TDA)
    yield _at_most(f"{on}, K = {largest}: CRG / the least", OVER_LEAST, at_largest, c.CRG, c.LEAST)
    if threads != results.threads[0]:
        return
    for k, over_tda, over_crg in ((middle, 1.5, 0.5), (largest, 1.0, 0.2)):
        cases, text = results.at(threads, k, n_views=1), f"{on}, K = {k}: anchored"
        yield _at_most(f"{text} / TDA", over_tda, cases, c.ANCHORED, c.TDA)
        yield _at_most(f"{text} / CRG without numba", over_crg, cases, c.ANCHORED, c.PLAIN)


def _at_most(text: str, bar: float, cases: list[Record], above: str, below: str) -> Goal:
    return _goal(f"{text}, at most {bar:g}", cases, above, below, lambda ratio: ratio <= bar)


def _goal(
    text: str, cases: list[Record], above: str, below: str, holds: Callable[[float], bool]
) -> Goal:
    """A ratio of two contenders at several sizes, from the smallest to the largest ratio."""
    ratios = sorted(median(case, above) / median(case, below) for case in cases)
    shown = " to ".join(dict.fromkeys((_figure(ratios[0]), _figure(ratios[-1]))))
    return Goal(text, shown, all(map(holds, ratios)))


def _growth(results: Results) -> Goal:
    small = results.at(results.threads[0], results.middle, n_views=1)[0]
    large = results.at(results.threads[0], results.largest, n_views=1)[0]
    ratio = median(large) / median(small)
    text = f"from K = {results.middle} to {results.largest} the step grows at most {GROWTH:g} times"
    return Goal(text, f"{_figure(ratio)} times", ratio <= GROWTH)


def _lasting(results: Results) -> Iterable[Goal]:
    for method, (first, *_, before, last) in results.record["long_run"].items():
        ratio = last["median"] / first["median"]
        text = f"{method}: step {last['step']:,} costs what step {first['step']:,} costs"
        yield Goal(text, f"{_figure(ratio)} times as much", ratio <= LATER)
        ratio, grown = last["rss"] / before["rss"], last["rss"] - before["rss"]
        text = f"{method}: memory is flat from step {before['step']:,} to {last['step']:,}"
        yield Goal(text, f"{grown:+,} bytes ({100 * (ratio - 1):+.1f}%)", ratio <= MEMORY)
        grown = last["state"] - before["state"]
        text = f"{method}: so is its state, {last['state']:,} bytes"
        yield Goal(text, f"{grown:+,} bytes", last["state"] <= STATE * before["state"])


def _agreement(results: Results) -> Goal:
    cases = [case for threads in results.threads for case in results.cases(threads)]
    worst = max(x for case in cases for x in case["agreement"].values())
    text = f"all forms of CRG agree to {AGREEMENT:g} of the largest logit, all sizes"
    return Goal(text, f"{worst:.1e}", worst <= AGREEMENT)


def _aim(results: Results) -> Goal:
    case = results.at(results.threads[0], results.middle, n_views=1)[0]
    text = f"{_on(results.threads[0])}, {_size(case)}: about 1 ms (an aim, not a bar)"
    return Goal(text, f"{_figure(median(case))} ms", None)


def tables(record: Record) -> str:
    """Everything between the markers."""
    results = Results(record)
    parts = [
        _machine(record),
        "### Goals",
        _table(["goal", "measured", "met"], [goal.cells() for goal in goals(results)]),
        "![Milliseconds per step against classes, width and steps](performance.svg)",
        *_steps(results),
        "### Two long runs",
        _long_table(record["long_run"]),
    ]
    return "\n\n".join(parts)


def _machine(record: Record) -> str:
    facts = ", ".join(f"{name} {value}" for name, value in record["machine"].items())
    return f"Measured {record['date']} on: {facts}."


def _steps(results: Results) -> Iterable[str]:
    threads = results.threads[0]
    cases = results.cases(threads, n_views=1)
    yield f"### {_on(threads)}, one view"
    yield "Milliseconds per step, medians unless said; performance.json has 64 views, too."
    head = ["K x D", *(_by(case) for case in cases)]
    yield _table(head, [[name, *map(get, cases)] for name, get in STEP_ROWS.items()])


def _of_crg(key: str, percent: bool = False) -> Callable[[Record], str]:
    def cell(case: Record) -> str:
        value = case["contenders"][c.CRG][key]
        if value is None:
            return "-"
        return f"{100 * value:.0f}%" if percent else _figure(value)

    return cell


def _of(name: str) -> Callable[[Record], str]:
    return lambda case: _figure(median(case, name))


def _ratio(above: str, below: str) -> Callable[[Record], str]:
    return lambda case: _figure(median(case, above) / median(case, below))


STEP_ROWS: dict[str, Callable[[Record], str]] = {
    "**CRG**": _of(c.CRG),
    "CRG, steps that changed the cache": _of_crg("median_replaced"),
    "CRG, the other steps": _of_crg("median_kept"),
    **{name: _of(name) for name in c.ALL if name != c.CRG},
    "anchored, slowest step (a refresh)": lambda case: _figure(
        case["contenders"][c.ANCHORED]["slowest"]
    ),
    "anchored / TDA": _ratio(c.ANCHORED, c.TDA),
    "anchored / CRG without numba": _ratio(c.ANCHORED, c.PLAIN),
    "plain form / CRG": _ratio(c.ORACLE, c.CRG),
    "CRG / TDA": _ratio(c.CRG, c.TDA),
    "CRG / the least": _ratio(c.CRG, c.LEAST),
    "fraction of steps that changed the cache": _of_crg("share_replaced", percent=True),
}


def _long_table(runs: dict[str, list[Record]]) -> str:
    head = ["method", "around step", "ms", "cache changed", "process memory (MB)", "state (bytes)"]
    lines = [
        [method, f"{m['step']:,}", _figure(m["median"]), f"{100 * m['share_replaced']:.1f}%",
         f"{m['rss'] / 1e6:.1f}", f"{m['state']:,}"]
        for method, marks in runs.items() for m in marks
    ]  # fmt: skip
    return _table(head, lines)


def _table(head: list[str], lines: list[list[str]]) -> str:
    rule = ["---", *["---:"] * (len(head) - 1)]
    return "\n".join(f"| {' | '.join(line)} |" for line in [head, rule, *lines])


def _size(case: Record) -> str:
    size = case["size"]
    return f"K = {size['n_classes']}, D = {size['width']}, V = {size['n_views']}"


def _by(case: Record) -> str:
    return f"{case['size']['n_classes']} x {case['size']['width']}"


def _on(threads: str) -> str:
    return "One thread" if threads == "1" else f"{threads} threads"


def _figure(value: float) -> str:
    """Three digits."""
    return f"{value:.3g}" if value < 1000 else f"{value:,.0f}"


def between_markers(document: str, text: str) -> str:
    """The document with ``text`` between its markers."""
    before, rest = document.split(BEGIN)
    _, after = rest.split(END)
    return f"{before}{BEGIN}\n{text}\n{END}{after}"
