"""Time per step, with contenders taking turns so that noise of the machine hits all alike."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

import contenders as c
from warm import Size, make_scene

_BLOCK = 10  # steps that a contender takes at a time: its arrays may stay in the cache
Record = dict[str, Any]


@dataclass(frozen=True)
class Plan:
    """How many steps are warm-up, and how many are measured per contender."""

    n_warm: int = 200
    steps: int = 400
    slow_steps: int = 60  # of those that need tens of milliseconds at K = 1000
    oracle_steps: int = 12
    oracle_steps_at_1000: int = 3

    def of(self, name: str, size: Size) -> int:
        """Measured steps of one contender."""
        large = size.n_classes * size.n_views > 500
        if name == c.ORACLE:
            return self.oracle_steps_at_1000 if size.n_classes > 500 else self.oracle_steps
        if name in (c.PLAIN, c.TORCH, c.DPE) and large:
            return min(self.slow_steps, self.steps)
        return self.steps


@dataclass
class Tally:
    """What the steps of one contender took."""

    milliseconds: list[float]
    changed: list[bool]
    evolved: list[bool]

    def summary(self) -> Record:
        """Medians, the mean, and how often something happened."""
        times, changed = np.array(self.milliseconds), np.array(self.changed)
        return {
            "n": len(times),
            "median": float(np.median(times)),
            "mean": float(np.mean(times)),
            "median_replaced": _median(times[changed]),
            "median_kept": _median(times[~changed]),
            "share_replaced": float(np.mean(changed)),
            "share_evolved": float(np.mean(self.evolved)),
        }


def _median(times: np.ndarray[Any, Any]) -> float | None:
    return float(np.median(times)) if len(times) else None


def measure(size: Size, names: tuple[str, ...], plan: Plan) -> Record:
    """One column of the table: the summary of every contender, and how far CRG's forms agree."""
    scene = make_scene(size, plan.n_warm + plan.steps + 1)
    field = c.contenders(scene, names, plan.n_warm)
    agreement = first_step(field, plan.n_warm)
    tallies = take_turns(field, {n: plan.of(n, size) for n in names}, plan.n_warm + 1)
    summaries = {name: tally.summary() for name, tally in tallies.items()}
    for each in field:
        if isinstance(each, c.Learning):
            measured = max(tallies[each.name].milliseconds)
            summaries[each.name]["slowest"] = max(each.slowest, measured)
    return {"size": asdict(size), "contenders": summaries, "agreement": agreement}


def first_step(field: list[c.Contender], place: int) -> dict[str, float]:
    """One unmeasured step of each, and how far the forms of CRG are from the compiled one.

    The largest difference of two logits over the largest logit; all start in one state.
    """
    logits = {}
    for each in field:
        with each.running():
            answer = each.step(place)
        if each.name in (c.CRG, c.PLAIN, c.TORCH, c.ORACLE):
            logits[each.name] = each.logits(answer)
    ours = logits.pop(c.CRG)
    return {n: float(np.abs(z - ours).max() / np.abs(ours).max()) for n, z in logits.items()}


def take_turns(
    field: list[c.Contender], n_steps: Mapping[str, int], start: int
) -> dict[str, Tally]:
    """Blocks of steps, round robin; those with fewer steps sit out evenly spaced rounds."""
    tallies = {each.name: Tally([], [], []) for each in field}
    n_rounds = -(-max(n_steps.values()) // _BLOCK)
    for turn in range(n_rounds):
        for each in field:
            tally = tallies[each.name]
            due = -(-n_steps[each.name] * (turn + 1) // n_rounds)
            _run_block(each, tally, start + len(tally.milliseconds), due - len(tally.milliseconds))
    return tallies


def _run_block(each: c.Contender, tally: Tally, place: int, n: int) -> None:
    with each.running():
        for i in range(place, place + n):
            begin = time.perf_counter_ns()
            answer = each.step(i)
            tally.milliseconds.append((time.perf_counter_ns() - begin) / 1e6)
            changed, evolved = each.facts(answer)
            tally.changed.append(changed)
            tally.evolved.append(evolved)
