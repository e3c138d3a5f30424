"""Finding the data of an experiment: feature files, stores, shapes, and what is missing."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from crg.bench.design import read_design
from crg.bench.sources import VARIABLE, discover, find_sources, named_paths, pick
from crg.results.schema import Source
from crg.types import InputError
from encoding_fakes import small_blocks as small_blocks
from made_experiments import FILES, ROWS, save_experiment, save_store
from made_files import save_raw, save_stream

CATALOGUED = '[[data]]\ndatasets = ["dtd", "eurosat"]\nmodels = ["RN50"]\n'
SHAPES = '[[data]]\nshapes = ["night", "fog"]\nimages = 32\nshots = 2\n'
DOMAINS = '[[setting]]\norder = "domains"\n'


def _sources(folder: Path, text: str, *data: Path) -> dict[str, Source]:
    design = read_design(save_experiment(folder, f"{ROWS}\n{text}"))
    return {each.name: each for each in find_sources(design, discover(data), folder / "bench")}


def test_what_cannot_be_used_below_a_folder_is_reported(small_blocks: None, tmp_path: Path) -> None:
    """Files and stores are found some folders down; what looks like one and is none is named."""
    deep = tmp_path / "a" / "b"
    deep.mkdir(parents=True)
    save_stream(deep / "one.npz")
    save_store(tmp_path / "a" / "store")
    save_stream(tmp_path / "good.npz")
    (tmp_path / "empty.npz").touch()
    (tmp_path / "broken.npz").write_bytes((tmp_path / "good.npz").read_bytes()[:200])
    (tmp_path / "gone.npz").symlink_to(tmp_path / "nowhere.npz")
    (tmp_path / "notes.txt").write_text("passed over")
    np.savez(tmp_path / "weights.npz", weights=np.zeros(3))
    header = save_store(tmp_path / "store") / "store.json"
    header.write_text(header.read_text().replace("RN50", "RN51"))
    said: dict[str, str] = {}
    found = discover([tmp_path], lambda path, why: said.update({path.name: why}))
    names = [(each.name, each.dataset, each.model, each.is_named) for each in found]
    assert names == [("one", "one", None, False), ("dtd, RN50", "dtd", "RN50:openai", False),
                     ("good", "good", None, False)]  # fmt: skip
    [first, *_] = discover([deep, deep / "one.npz", deep / "one.npz"])
    assert first.is_named and len(discover([deep, deep / "one.npz"])) == 1  # each counts once
    assert set(said) == {"empty.npz", "broken.npz", "gone.npz", "weights.npz", "store"}
    assert "is empty: write it again" in said["empty.npz"]
    assert "damaged" in said["broken.npz"] and "does not exist" in said["gone.npz"]
    assert "holds no 'image_features'" in said["weights.npz"]


@pytest.mark.parametrize("name", ["nothing.npz", "text.npz", "text.txt"])
def test_what_is_named_itself_must_be_usable(name: str, tmp_path: Path) -> None:
    """A path that is not there or is something else is refused with what to give instead."""
    (tmp_path / "text.npz").write_text("no archive")
    (tmp_path / "text.txt").write_text("no archive")
    with pytest.raises(InputError, match=r"check what --data|damaged|not an? "):
        discover([tmp_path / name])


def test_the_environment_names_data_where_the_command_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CRG_DATA is a list of paths, and what is given wins over it."""
    monkeypatch.setenv(VARIABLE, f"a{os.pathsep}b")
    assert named_paths([]) == (Path("a"), Path("b"))
    assert named_paths(["c"]) == (Path("c"),)
    monkeypatch.delenv(VARIABLE)
    assert named_paths([]) == ()


def test_stores_are_matched_by_dataset_and_model(small_blocks: None, tmp_path: Path) -> None:
    """The original weights are preferred; a store of another model is none."""
    save_store(tmp_path / "1", model="openclip:RN50:yfcc15m")
    save_store(tmp_path / "2", model="RN50:openai")
    save_store(tmp_path / "3", model="ViT-B-16:openai")
    found = discover([tmp_path])
    assert [
        Path(best.path).name if (best := pick(found, "dtd", model)) else None
        for model in ("rn50", "vit-b/16", "RN101")
    ] == ["2", "3", None]


def test_missing_datasets_are_sources_that_say_so(small_blocks: None, tmp_path: Path) -> None:
    """A dataset that is there has a path, a missing one the command that encodes it."""
    sources = _sources(tmp_path, CATALOGUED, save_store(tmp_path / "store"))
    assert sources["dtd, RN50"].path == str(tmp_path / "store")
    missing = sources["eurosat, RN50"]
    assert not missing.path and "crg encode eurosat --model RN50" in str(missing.missing)


def test_files_are_what_no_dataset_took(small_blocks: None, tmp_path: Path) -> None:
    """A store that was matched is not listed again; feature files are never matched."""
    store, file = save_store(tmp_path / "store"), save_stream(tmp_path / "dtd.npz")
    both = _sources(tmp_path, f"{CATALOGUED}\n{FILES}", store, file)
    assert both["dtd"].path == str(file) and both["dtd"].dataset == "dtd"
    assert len([each for each in both.values() if each.missing is None]) == 2
    alone = _sources(tmp_path, FILES, store)
    assert alone["dtd, RN50"].dataset == "dtd"


def test_files_of_the_same_name_have_paths_as_names(tmp_path: Path) -> None:
    """Their paths are their names."""
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        save_stream(tmp_path / name / "same.npz")
    assert set(_sources(tmp_path, FILES, tmp_path)) == {
        str(tmp_path / "a" / "same.npz"),
        str(tmp_path / "b" / "same.npz"),
    }


def test_shapes_have_places_of_their_own(tmp_path: Path) -> None:
    """Whatever decides their content is in the names of their folders; nothing is made yet."""
    sources = _sources(tmp_path, SHAPES)
    night = sources["shapes:night:3"]
    assert night.path == str(tmp_path / "bench" / "night-3-32x8")
    assert night.few == str(tmp_path / "bench" / "night-3-labelled-2")
    other = _sources(tmp_path, SHAPES.replace("shots", "generated"))["shapes:night:3"]
    assert other.path != night.path and other.few is None
    assert not (tmp_path / "bench").exists()


def test_a_file_that_cannot_be_read_is_part_of_no_sequence(tmp_path: Path) -> None:
    """Those that can be read follow each other without it; it stays a source that says why."""
    for name in ("a", "c"):
        save_stream(tmp_path / f"{name}.npz", seed=len(name))
    save_raw(tmp_path / "b.npz", image_features=np.full((12, 8), np.nan, np.float32))
    sources = _sources(tmp_path, f"{DOMAINS}{FILES}", tmp_path)
    assert list(sources) == ["a", "b", "c", "a, then c"]
    with pytest.raises(InputError, match=r"b\.npz: "):
        _sources(tmp_path, f"{DOMAINS}{FILES}", tmp_path / "a.npz", tmp_path / "b.npz")


def test_domains_come_from_shapes_and_from_files_that_fit(tmp_path: Path) -> None:
    """Shifts follow each other, and so do files of the same width; others stay alone."""
    one, two = save_stream(tmp_path / "one.npz"), save_stream(tmp_path / "two.npz", seed=1)
    wide, bare = save_raw(tmp_path / "wide.npz"), save_raw(tmp_path / "bare.npz", labels=None)
    sources = _sources(tmp_path, f"{DOMAINS}{SHAPES}{FILES}", one, two, wide, bare)
    sequences = {name: each.paths for name, each in sources.items() if each.order}
    assert list(sequences) == ["shapes:night, then fog", "one, then two"]
    assert sequences["one, then two"] == (str(one), str(two))
    assert not any(each.order for each in _sources(tmp_path, FILES, one, two).values())
