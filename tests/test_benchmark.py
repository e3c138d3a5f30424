"""The benchmark, on tiny sizes: every row appears and the contenders agree. No clock is judged."""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("numba")
ROOT = Path(__file__).parent.parent
sys.path.append(str(ROOT / "benchmarks"))

import contenders as c  # noqa: E402
import report  # noqa: E402
import step  # noqa: E402
from lasting import long_run  # noqa: E402
from timing import Plan, measure  # noqa: E402
from warm import Size, make_scene, warm_adapter  # noqa: E402

PLAN = Plan(n_warm=10, steps=20, slow_steps=5, oracle_steps=2, oracle_steps_at_1000=1)
SIZES = (Size(10, 32), Size(20, 32), Size(10, 32, 8))


@pytest.fixture(scope="module")
def record() -> dict[str, Any]:
    """All parts of a measurement, in this process."""
    cases = [measure(size, c.ALL, PLAN) for size in SIZES]
    return {
        "date": "today",
        "machine": {"processor": "any"},
        "cases": {"1": cases, "2": cases},
        "curves": {"classes": cases[:2], "width": cases[:2]},
        "long_run": {m: long_run(SIZES[0], 50, (20, 60, 100), m) for m in ("crg", "anchored")},
    }


def test_every_row_is_there(record: dict[str, Any]) -> None:
    """All rows are there, all forms of CRG agree, and queues are full on warm streams."""
    text = report.tables(record)
    for name in report.STEP_ROWS:
        assert f"| {name} |" in text
    for words in ("plain form / CRG, at least", "CRG / TDA, at most", "CRG / the least, at most",
                  "torch tensors / plain form", "anchored / TDA, at most", "the step grows",
                  "costs what step", "memory is flat", "its state,", "agree to", "about 1 ms",
                  "anchored / CRG without numba, at most"):  # fmt: skip
        assert words in text
    assert "nan" not in text.lower()
    for case in record["cases"]["1"]:
        assert set(case["agreement"]) == {c.PLAIN, c.TORCH, c.ORACLE}
        assert max(case["agreement"].values()) < report.AGREEMENT
    queues = warm_adapter("crg", make_scene(SIZES[0], 20)).cache
    assert all(len(queue) == 12 and np.isfinite(queue[-1].entropy) for queue in queues.values())
    for case in record["cases"]["1"]:
        assert 0 < case["contenders"][c.CRG]["share_replaced"] < 1
        assert case["contenders"][c.CRG]["share_evolved"] > 0


def test_one_size_can_be_measured_alone() -> None:
    """CRG, the least and their ratio, at the size that was asked for and no other."""
    few = {"n_warm": 5, "steps": 10}
    found = step.measure_only(step.parse_size("10,32,4"), few)
    assert found["crg"] > 0 and found["least"] > 0
    assert found["ratio"] == pytest.approx(found["crg"] / found["least"])
    with pytest.raises(argparse.ArgumentTypeError, match="give K,D,V"):
        step.parse_size("10,32")


def test_all_is_written(
    record: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tables, raw numbers and a chart of moderate size."""
    pytest.importorskip("matplotlib")
    monkeypatch.setattr(step, "DOCS", tmp_path)
    (tmp_path / "performance.md").write_text(f"{report.BEGIN}\n{report.END}\n")
    step.write(record, report.tables(record))
    assert "### Goals" in (tmp_path / "performance.md").read_text()
    assert json.loads((tmp_path / "performance.json").read_text()) == record
    assert 1_000 < (tmp_path / "performance.svg").stat().st_size < 150_000


def test_tables_of_the_documents_are_those_of_the_stored_measurements() -> None:
    """docs/performance.md prints performance.json; ratios of the other tables fit their times."""
    record, document = ((ROOT / f"docs/performance.{kind}").read_text() for kind in ("json", "md"))
    assert report.between_markers(document, report.tables(json.loads(record))) == document
    times = re.findall(r"([\d.]+) ms \| ([\d.]+) x", (ROOT / "docs/encoders.md").read_text())
    assert len(times) == 12
    for place, (ms, ratio) in enumerate(times):
        assert float(ratio) == pytest.approx(float(times[place % 2][0]) / float(ms), abs=0.051)
    service = (ROOT / "docs/service.md").read_text()
    [bare] = re.findall(r"\| bare \| (\d+) \| 1 \|", service)
    rates = re.findall(r"client[^|]*?(\d+)? \| (\d+) \| (0\.\d+) \|", service)
    assert len(rates) == 4
    for own_bare, rate, ratio in rates:
        assert float(ratio) == pytest.approx(int(rate) / int(own_bare or bare), abs=0.0101)
