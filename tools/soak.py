"""Attacks for as long as asked: every family in turn, then a table of what was tried.

``python tools/soak.py --minutes 60 --seed 0`` starts at a seed of its own for every family, so
that a case is repeated by ``python tools/soak.py --only FAMILY --seed SEED --cases 1``. Ctrl-C
ends it early with the table. The exit code is 1 if a case was not handled.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")  # threads do not survive the forks of some attacks
sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import click  # noqa: E402  (NumPy must find the variables set)

from attacks import FAMILIES, Family  # noqa: E402

_TURN = 10.0  # seconds that a family has, at least one case long
_SHOWN = 1500  # characters of a failure


class Soak:
    """What was tried so far."""

    def __init__(self, seed: int, place: Path) -> None:
        self._place, self._seeds = place, Counter({family.name: seed for family in FAMILIES})
        self.counts: dict[str, Counter[str]] = {family.name: Counter() for family in FAMILIES}
        self.seconds: Counter[str] = Counter()

    def turn(self, family: Family, end: float, cases: int | None) -> None:
        """Cases of one family, until its time or the whole is over."""
        start = time.monotonic()
        while time.monotonic() < min(start + _TURN, end) and cases != self.tried(family.name):
            seed = self._seeds[family.name]
            self._seeds[family.name] += 1
            outcome, why = family.case(seed, self._place)
            self.counts[family.name][outcome or "failed"] += 1
            if outcome is None:
                again = f"python tools/soak.py --only {family.name} --seed {seed} --cases 1"
                click.echo(f"\nFAILED: {again}\n{why[:_SHOWN]}", err=True)
        self.seconds[family.name] += round(time.monotonic() - start)

    def tried(self, name: str) -> int:
        """How many cases of a family are over."""
        return self.counts[name].total()

    def table(self) -> str:
        """One line per family, and their sum."""
        rows = [(name, count, self.seconds[name]) for name, count in self.counts.items() if count]
        total = sum((count for _, count, _ in rows), Counter[str]())
        lines = [f"{'family':<16}{'tried':>8}{'refused':>9}{'handled':>9}{'failed':>8}{'s':>7}"]
        for name, count, seconds in (*rows, ("all", total, self.seconds.total())):
            lines.append(
                f"{name:<16}{count.total():>8}{count['refused']:>9}{count['handled']:>9}"
                f"{count['failed']:>8}{seconds:>7}"
            )
        return "\n".join(lines)

    @property
    def failed(self) -> int:
        """How many cases were not handled."""
        return sum(count["failed"] for count in self.counts.values())


@click.command()
@click.option("--minutes", default=60.0, show_default=True, type=click.FloatRange(min=0))
@click.option("--seed", default=0, show_default=True, type=click.IntRange(min=0))
@click.option("--only", type=click.Choice([family.name for family in FAMILIES]))
@click.option("--cases", type=click.IntRange(min=1), help="Of each family.  [default: any number]")
def main(minutes: float, seed: int, only: str | None, cases: int | None) -> None:
    """Attack the package until the time is over, and print what was tried."""
    chosen = [family for family in FAMILIES if only in (None, family.name)]
    start, place = time.monotonic(), Path(tempfile.mkdtemp(prefix="crg-soak-"))
    soak, end = Soak(seed, place), start + 60 * minutes
    try:
        while time.monotonic() < end and any(cases != soak.tried(f.name) for f in chosen):
            for family in chosen:
                soak.turn(family, end, cases)
                tried = sum(count.total() for count in soak.counts.values())
                left = max(0.0, end - time.monotonic()) / 60
                text = f"{tried} cases, {soak.failed} failed, {left:.0f} minutes left"
                click.echo(f"\r{text} ({family.name})".ljust(79), nl=False, err=True)
    except KeyboardInterrupt:
        pass
    finally:
        shutil.rmtree(place, ignore_errors=True)
    click.echo("", err=True)
    click.echo(soak.table())
    sys.exit(1 if soak.failed else 0)


if __name__ == "__main__":
    main()
