"""``crg bench --rerun``: a run from its line in a results file gives the same bits again."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import Result
from msgspec.structs import replace

from crg.bench.design import DataDesign
from crg.bench.rerun import find_run
from crg.bench.sources import render_store, shape_names, shapes_in
from crg.results import ledger
from crg.results.schema import Result as Run
from crg.results.schema import encode
from documents import ROOT
from keep_results import archive_file
from made_experiments import FILES, lines_of, save_experiment
from made_files import raw_values, save_plugin, save_raw, save_stream
from processes import called

EXPERIMENT = f"""orders = 1
row = [{{ method = "crg", options = {{ queue_size = 3 }} }}, {{ method = "gda" }}]
setting = [{{}}, {{ order = "by_class", mislabelled = 0.3 }}, {{ order = "domains" }}]
{FILES}"""

SHAPES = """orders = 1
row = [{ method = "gda" }]
setting = [{ order = "domains" }]
data = [{ shapes = ["night", "clean"], images = 32, views = 2, shots = 1 }]
"""


def _rerun(line: str, *words: str, code: int = 0) -> Result:
    return called("bench", "--rerun", line, *words, code=code)


def _measure(folder: Path, text: str, *words: str) -> Path:
    """The results of an experiment that is run in the current folder."""
    called("bench", str(save_experiment(folder, text)), *words, "--workers", "1")
    return Path("results", "small.jsonl")


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a finished experiment on two files."""
    folder = tmp_path_factory.mktemp("finished")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        values = raw_values(n=30, width=64)  # of narrower ones compiled sums depend on the memory
        few = {"few_features": values["image_features"][:6], "few_labels": np.arange(6) % 3}
        save_raw(Path("one.npz"), **values, **few)
        save_raw(Path("two.npz"), **raw_values(width=64), **few)
        _measure(folder, EXPERIMENT, "--data", "one.npz", "--data", "two.npz")
    return folder


@pytest.fixture
def made(finished: Path, here: Path) -> Path:
    """The results of the experiment, in a copy of its folder."""
    shutil.copytree(finished, here, dirs_exist_ok=True)
    path = here / "results" / "small.jsonl"
    path.write_text(path.read_text().replace(str(finished), str(here)))
    return path


def _numbers(path: Path) -> list[int]:
    return [number for number, line in enumerate(lines_of(path), start=1) if "metrics" in line]


def _edited(path: Path, edit: Callable[[dict[str, Any]], Any]) -> str:
    """A results file with one line, that of the third one after an edit."""
    line, number = lines_of(path)[2], len(list(Path().glob("edited*")))
    edit(line)
    Path(f"edited{number}.jsonl").write_text(json.dumps(line) + "\n")
    return f"edited{number}.jsonl:1"


def test_every_kind_of_run_is_the_same_again(made: Path) -> None:
    """Options, scenario, further files and labelled images are all in the line."""
    runs = _numbers(made)
    assert len(runs) == 15
    for number in runs[2::4]:
        done = _rerun(f"{made}:{number}")
    assert "Everything was measured again as it was" in done.output


def test_what_is_no_run_is_refused(made: Path) -> None:
    """Lines of other kinds or in parts, and lines and files that are not there."""
    count = len(lines_of(made))
    which = "names no run: write FILE:NUMBER, its line counted from 1."
    for line, said in (
        (f"{made}:1", "is not a run: name the line of one."),
        (f"{made}:99", f"has no line 99: it has {count} lines, which count from 1."),
        (f"{made}:0", f"has no line 0: it has {count} lines, which count from 1."),
        (f"{made}:x", which),
        (str(made), which),
        ("nothing.jsonl:1", which),
        (_edited(made, lambda line: line.pop("metrics")), "`metrics`"),
        (_edited(made, lambda line: line.pop("data")), "`data`"),
    ):
        assert said in _rerun(line, code=2).output
    assert "No experiment is named" in called("bench", code=2).output


def test_other_numbers_and_surroundings_are_reported(
    made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An edited number is an exit code of 1; another version, machine or code is only a note."""
    monkeypatch.setenv("CRG_COMPILED", "0")  # as if numba were not there

    def edit(line: dict[str, Any]) -> None:
        line["versions"]["numba"] = "0.1"
        line["metrics"]["accuracy"] += 1e-16 + 0.01
        line["zero_shot"]["nll"] = 1.0
        line["versions"]["numpy"], line["machine"]["host"], line["code"] = "0.1", "far", "other"
        del line["machine"]["blas"]  # what was not recorded is no note

    done = _rerun(_edited(made, edit), code=1)
    assert "blas" not in done.output
    for said in ("numpy was 0.1", "numba was 0.1 and is not installed.", "host was far and is",
                 " has changed.", "(-0.01).", "Not the same: accuracy was",
                 "Not the same: zero_shot: nll was 1.0"):  # fmt: skip
        assert said in done.output


def test_changed_and_lost_data_are_refused(made: Path) -> None:
    """A file that is not what it was, first or further one, and one that is gone."""
    sequence = 1 + next(k for k, line in enumerate(lines_of(made)) if line.get("then"))
    save_stream(Path("two.npz"))
    assert "has changed since the run" in _rerun(f"{made}:{sequence}", code=2).output
    Path("one.npz").unlink()
    said = "one.npz is not there: name the folder"
    assert said in _rerun(f"{made}:{sequence}", code=2).output


def test_a_line_loads_no_plug_in(here: Path) -> None:
    """A results file may come from a stranger: the user must name its plug-in."""
    plugin = ("--plugin", str(save_plugin(here)))
    words = ("compare", str(save_stream(here / "a.npz")), "--methods", "constant:answer=2")
    called(*plugin, *words, "--orders", "1")
    lines = lines_of(Path("crg-results.jsonl"))
    number = 1 + next(k for k, each in enumerate(lines) if each.get("method") == "constant")
    assert "--plugin if you trust it" in _rerun(f"crg-results.jsonl:{number}", code=2).output
    assert "constant, seed 0" in _rerun(f"crg-results.jsonl:{number}", *plugin).output


def test_archived_lines_are_repeated_to_the_last_bit(made: Path, tmp_path: Path) -> None:
    """An archived line has no path but a name, and finds its data by it; the digest decides."""
    short = tmp_path / "short.jsonl.gz"
    archive_file(made, short)
    assert short.stat().st_size < made.stat().st_size / 5
    far = tmp_path / "far"
    far.mkdir()
    for name in ("one.npz", "two.npz"):
        (tmp_path / name).rename(far / name)
    runs = _numbers(made)
    for number in runs[::9]:
        assert "4 of 4 values." in _rerun(f"{short}:{number}", "--data", str(far)).output
    assert "--data" in _rerun(f"{short}:{runs[0]}", code=2).output
    entry = ledger.read(short).entries[runs[0]]
    assert isinstance(entry, Run)
    Path("edited.jsonl").write_bytes(encode(replace(entry, digest="0")))
    done = _rerun("edited.jsonl:1", "--data", str(far), code=1)
    assert "Not the same: digest" in done.output


@pytest.mark.parametrize("shift", ["clean", "night", "recoloured"])
@pytest.mark.parametrize("more", [{"views": 1}, {"views": 12, "generated": 8}, {"shots": 16}])
def test_the_name_of_a_store_says_what_is_in_it(shift: str, more: dict[str, int]) -> None:
    """Whatever decides the content can be read back from the name, part by part."""
    severity = 3 if shift == "clean" else 5  # which clean shapes do not have
    data = DataDesign(shapes=(shift,), severity=severity, **more)  # type: ignore[arg-type]
    _, store, labelled = shape_names(data)
    assert shapes_in(labelled or store) == data


@pytest.mark.parametrize(
    "name",
    ["dtd.npz", "night", "night-480x8", "rain-3-480x8", "night-6-480x8", "clean-3-480x8",
     "night-3-480-made", "night-3-480x8-0made", "night-3-480x8-labelled-4", "night-3-0x8", ""],
)  # fmt: skip
def test_other_names_are_no_shapes(name: str, tmp_path: Path) -> None:
    """Nothing is rendered for a name that no store of shapes has."""
    assert shapes_in(name) is None
    assert render_store(name, tmp_path / "new") is None
    assert not (tmp_path / "new").exists()


def test_lost_shapes_are_rendered_again(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Streams and labelled images come back with the same bits; others are refused."""
    archive_file(_measure(here, SHAPES), Path("short.jsonl.gz"))
    shutil.rmtree("build")
    entries = ledger.read("short.jsonl.gz").entries.items()
    number = next(n for n, run in entries if isinstance(run, Run) and run.method == "gda")
    done = _rerun(f"short.jsonl.gz:{number}")
    for name in ("night-3-32x2", "clean-32x2", "night-3-labelled-1"):
        said = f"Note: {name} is not there and is rendered again into {Path('build', 'bench')}."
        assert said in done.stderr and Path("build", "bench", name).is_dir()
    assert "Everything was measured again as it was" in done.stdout
    monkeypatch.setattr("crg.bench.sources.STREAM_SEED", 22)
    refused = _rerun(f"short.jsonl.gz:{number}", "--folder", "other", code=2)
    assert Path("other", "clean-32x2").is_dir()
    assert "differs from what the run saw" in refused.stderr


@pytest.mark.parametrize("document", ["docs/results/README.md", "docs/command-line.md"])
def test_the_documented_lines_are_what_the_documents_say(document: str) -> None:
    """A line that is to be repeated without any data is of shapes, the others of feature files."""
    text = (ROOT / document).read_text(encoding="utf-8")
    commands = re.findall(r"^crg bench --rerun (docs/results/\S+)( --data)?", text, re.MULTILINE)
    assert commands
    for line, with_data in commands:
        name = Path(find_run(str(ROOT / line)).data.path).name
        assert name.endswith(".npz") if with_data else shapes_in(name) is not None
