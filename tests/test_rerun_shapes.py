"""Running again on rendered shapes, which are rendered again where they are not there."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from crg.atomic import file_sha256
from crg.bench.rendered import Shapes, render_store, shapes_in
from crg.bench.rerun import archive_file, find_line
from crg.cli import main
from crg.features import store as storage
from crg.results.ledger import read
from crg.results.schema import ArchivedRun
from made_experiments import save_experiment
from sentences import refused_in_one_sentence

ROOT = Path(__file__).parents[1]
EXPERIMENT = """orders = 1
[[row]]
method = "gda"
[[setting]]
order = "domains"
[[data]]
shapes = ["night", "clean"]
images = 32
views = 2
shots = 1
"""


@pytest.mark.parametrize("shift", ["clean", "night", "recoloured"])
@pytest.mark.parametrize("views", [1, 12])
@pytest.mark.parametrize("generated", [0, 8])
def test_the_name_of_a_store_tells_what_is_in_it(shift: str, views: int, generated: int) -> None:
    """Whatever decides the content can be read back from the name, part by part."""
    severity = 3 if shift == "clean" else 5  # which clean shapes do not have
    shapes = Shapes(shift, severity, 480, views, 0, generated)
    assert shapes_in(shapes.store(Path("any")).name) == shapes


@pytest.mark.parametrize("shift", ["clean", "fog"])
def test_the_name_of_labelled_images_tells_what_is_in_it(shift: str) -> None:
    """Shift, severity and the number per class are read back."""
    severity = 3 if shift == "clean" else 1
    shapes = Shapes(shift, severity, shots=16)
    few = shapes.few_store(Path("any"))
    assert few is not None and shapes_in(few.name) == shapes


@pytest.mark.parametrize(
    "name",
    ["dtd.npz", "night", "night-480x8", "rain-3-480x8", "night-6-480x8", "clean-3-480x8",
     "night-3-480-made", "night-3-480x8-0made", "night-3-480x8-labelled-4", "night-3-0x8", ""],
)  # fmt: skip
def test_other_names_are_no_shapes(name: str, tmp_path: Path) -> None:
    """Nothing is rendered for a name that no store of shapes has."""
    assert shapes_in(name) is None
    assert render_store(name, tmp_path / "new", 1, lambda what, progress: None) is None
    assert not (tmp_path / "new").exists()


def test_a_folder_that_cannot_be_made_is_refused() -> None:
    """The remedy is another folder."""
    with refused_in_one_sentence("/dev/null/zz", "choose another folder with --folder."):
        render_store("night-3-32x1", Path("/dev/null/zz"), 1, lambda what, progress: None)


@pytest.fixture
def short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A short line of a run over two shifts with labelled images, all of whose data is lost."""
    monkeypatch.chdir(tmp_path)
    words = ["bench", str(save_experiment(tmp_path, EXPERIMENT)), "--workers", "1"]
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 0, done.output
    whole = tmp_path / "results" / "small.jsonl"
    archive_file(whole, tmp_path / "short.jsonl.gz")
    shutil.rmtree(tmp_path / "build")
    shutil.rmtree(tmp_path / "results")
    return "short.jsonl.gz"


def _few_shot(file: str) -> str:
    lines = read(file).entries.items()
    runs = {number: each for number, each in lines if isinstance(each, ArchivedRun)}
    return f"{file}:{next(number for number, run in runs.items() if run.method == 'gda')}"


def test_lost_shapes_are_rendered_again(short: str) -> None:
    """Streams, further streams and labelled images come back, and the bits are the same."""
    done = CliRunner().invoke(main, ["rerun", _few_shot(short)])
    assert done.exit_code == 0, done.output
    for name in ("night-3-32x2", "clean-32x2", "night-3-labelled-1"):
        told = f"Note: {name} is not there and is rendered again into {Path('build', 'bench')}."
        assert told in done.stderr and Path("build", "bench", name).is_dir()
    assert "Everything was measured again as it was" in done.stdout
    again = CliRunner().invoke(main, ["rerun", _few_shot(short)])
    assert again.exit_code == 0 and "rendered" not in again.stderr


def test_shapes_that_came_out_otherwise_are_refused(
    short: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the images get other features the run is not repeated, and the reason is reported."""
    monkeypatch.setattr("crg.bench.rendered.STREAM_SEED", 22)
    refused = CliRunner().invoke(main, ["rerun", _few_shot(short), "--folder", "other"])
    assert refused.exit_code == 2 and Path("other", "clean-32x2").is_dir()
    assert "is not what the run saw, for zero-shot has another NLL on it" in refused.stderr


def _disturb(store: Path, noise: float) -> None:
    """Add noise to every number of a store, under checksums that match."""
    header, file = storage.read_header(store), store / storage.IMAGES
    images = np.load(file).astype(np.float32)
    images += noise * np.random.default_rng(0).standard_normal(images.shape)
    np.save(file, images.astype(storage.HALF))
    sums = header.checksums | {storage.IMAGES: file_sha256(file)}
    storage.write_header(store, replace(header, checksums=sums))


def test_shapes_with_other_last_bits_are_compared_by_tolerance(short: str) -> None:
    """Close features give a count of equal answers and distances of figures; others are refused."""
    line, stores = _few_shot(short), ("night-3-32x2", "clean-32x2", "night-3-labelled-1")
    assert CliRunner().invoke(main, ["rerun", line]).exit_code == 0
    for store in stores:
        _disturb(Path("build", "bench", store), 1e-6)
    close = CliRunner().invoke(main, ["rerun", line])
    assert close.exit_code == 1, close.output
    assert "Note: the shapes were encoded here with other last bits" in close.stderr
    assert "Equal answers: 64 of 64." in close.stdout
    [nll] = [each for each in close.stdout.splitlines() if "Not the same: nll" in each]
    assert re.search(r"\([+-]\d(\.\d)?e-0[5-9]\)\.$", nll)
    told = json.loads(CliRunner().invoke(main, ["rerun", line, "--json"]).stdout)
    assert told["equal_answers"] == [64, 64] and not told["is_same"]
    for store in stores:
        _disturb(Path("build", "bench", store), 0.1)
    refused = CliRunner().invoke(main, ["rerun", line])
    assert refused.exit_code == 2 and "is not what the run saw" in refused.stderr


@pytest.mark.parametrize("document", ["docs/results/README.md", "docs/command-line.md"])
def test_the_documented_lines_are_what_the_documents_say(document: str) -> None:
    """A line that is to be repeated without any data is of shapes, the others of feature files."""
    text = (ROOT / document).read_text(encoding="utf-8")
    commands = re.findall(r"^crg rerun (docs/results/\S+)( --data)?", text, flags=re.MULTILINE)
    assert commands
    for line, with_data in commands:
        found = find_line(str(ROOT / line), [])
        name = Path(found.run.data.path).name
        assert name.endswith(".npz") if with_data else shapes_in(name) is not None
