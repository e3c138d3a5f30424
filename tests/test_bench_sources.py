"""Finding the data of an experiment: files, stores, shapes, labelled images, what is missing."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from crg.bench.design import read_design
from crg.bench.plan import Plan, plan
from crg.bench.sources import discover, find_sources, pick
from crg.datasets import drawn_indices, load_dataset
from crg.datasets.catalog import catalogue, find_split, get_entry
from crg.engine.worker import run_spec
from crg.results.papers import bundled_papers
from crg.results.schema import Source
from encoding_fakes import HashEncoder, dot_files, run
from encoding_fakes import small_blocks as small_blocks
from made_datasets import make_split_dataset, put_all, split_of
from made_experiments import FILES, ROWS, save_experiment, save_store
from made_files import save_raw, save_stream
from processes import called
from sentences import check_refused

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


def test_the_environment_names_data_where_the_command_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CRG_DATA is a list of paths, and what is given wins over it."""
    a, b, c = (str(save_stream(tmp_path / f"{name}.npz")) for name in "abc")
    monkeypatch.setenv("CRG_DATA", f"{a}{os.pathsep}{b}")
    words = ["bench", str(save_experiment(tmp_path)), "--list"]
    for given, paths in (([], [a, b]), (["--data", c], [c])):
        listed = called(*words, *given).output
        assert [line.split(": ")[1] for line in listed.splitlines() if "dataset" in line] == paths


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


def test_files_are_what_no_dataset_took(small_blocks: None, tmp_path: Path) -> None:
    """A matched store is not listed again; a missing dataset says how to encode it."""
    store, file = save_store(tmp_path / "store"), save_stream(tmp_path / "dtd.npz")
    both = _sources(tmp_path, f"{CATALOGUED}\n{FILES}", store, file)
    assert {name: each.path for name, each in both.items()} == {
        "dtd, RN50": str(store),
        "eurosat, RN50": "",
        "dtd": str(file),
    }
    assert "crg encode eurosat --model RN50" in str(both["eurosat, RN50"].missing)
    assert _sources(tmp_path, FILES, store)["dtd, RN50"].dataset == both["dtd"].dataset == "dtd"


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
    files = (tmp_path / "a.npz", tmp_path / "b.npz")
    check_refused("b.npz: ", _sources, tmp_path, f"{DOMAINS}{FILES}", *files)


def test_domains_come_from_shapes_and_from_files_that_fit(tmp_path: Path) -> None:
    """Shifts follow each other, and so do files of the same width; others stay alone."""
    one, two = save_stream(tmp_path / "one.npz"), save_stream(tmp_path / "two.npz", seed=1)
    wide, bare = save_raw(tmp_path / "wide.npz"), save_raw(tmp_path / "bare.npz", labels=None)
    sources = _sources(tmp_path, f"{DOMAINS}{SHAPES}{FILES}", one, two, wide, bare)
    sequences = {name: each.paths for name, each in sources.items() if each.order}
    assert list(sequences) == ["shapes:night, then fog", "one, then two"]
    assert sequences["one, then two"] == (str(one), str(two))
    assert not any(each.order for each in _sources(tmp_path, FILES, one, two).values())


def test_files_are_joined_within_their_table_only(tmp_path: Path) -> None:
    """Names choose files by their stem; true takes what is left; no sequence crosses a table."""
    for name in "abcde":
        save_stream(tmp_path / f"{name}.npz", seed=ord(name))
    groups = "".join(f"[[data]]\nfiles = {names}\n" for names in (["b", "a"], ["c", "lost"]))
    sources = _sources(tmp_path, f"{DOMAINS}{groups}{FILES}", tmp_path)
    assert list(sources) == ["b", "a", "b, then a", "c", "d", "e", "d, then e"]
    alone = _sources(tmp_path, f"{DOMAINS}{groups}", tmp_path)
    assert list(alone) == ["b", "a", "b, then a", "c"]


def test_a_file_may_name_its_dataset(tmp_path: Path) -> None:
    """Presets and published numbers are those of the dataset, and the name stays the file's."""
    path = save_raw(tmp_path / "pets_b16.npz", dataset="oxfordpets", model="ViT-B-16")
    [source] = _sources(tmp_path, FILES, path).values()
    assert (source.name, source.dataset, source.model) == ("pets_b16", "oxfordpets", "ViT-B-16")
    text = f"reported = 'cross_datasets'\n[[row]]\nmethod = 'tda'\npreset = 'published'\n{FILES}"
    design = read_design(save_experiment(tmp_path, text))
    outline = plan(design, find_sources(design, discover([path]), tmp_path), tmp_path).outline
    assert all(cell.reason is None for cell in outline.cells)
    found = bundled_papers().printed(outline, outline.sources[0], outline.rows[1])
    assert found and all(each.value > 80 for each in found)


FEW_ROWS = '[[row]]\nmethod = "tip_adapter"\noptions = { shots = 2 }\n'
DTD = '[[data]]\ndatasets = ["dtd"]\nmodels = ["RN50"]\n'


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A copy of DTD with images in every split."""
    make_split_dataset(tmp_path / "root", get_entry("dtd"), split_of(train=5, val=3, test=4))
    return tmp_path / "root"


def _encode(root: Path, out: Path, split: str, shots: int | None = None, tag: str = "") -> Path:
    images = load_dataset("dtd", root=root, split=split, shots=shots)
    run(images, out, HashEncoder(f"RN50{tag}", f"weights{tag}"))
    return out


def _plan(folder: Path, *data: Path) -> Plan:
    design = read_design(save_experiment(folder, f"{FEW_ROWS}{FILES}"))
    return plan(design, find_sources(design, discover(data), folder), folder)


def test_shots_are_a_draw_of_each_class(tmp_path: Path) -> None:
    """At most so many of each class, by the seed; a smaller draw begins a larger one."""
    put_all(
        tmp_path / f"{name}/{n}.jpg" for name, count in (("a", 9), ("b", 2)) for n in range(count)
    )
    whole, some = load_dataset(str(tmp_path)), load_dataset(str(tmp_path), shots=3)
    assert some.labels == (0, 1, 0, 1, 0)
    assert [some.class_names[k] for k in some.labels] == [name[0] for name in some.ids]
    assert some.sources == tuple(tmp_path / name for name in some.ids)
    surest = whole.ids[drawn_indices(11, 1)[0]]  # what --limit 1 draws is the first of its class
    assert surest in load_dataset(str(tmp_path), shots=1).ids == some.ids[:2]
    assert set(load_dataset(str(tmp_path), shots=9).ids) == set(whole.ids)
    others = {load_dataset(str(tmp_path), shots=3, seed=seed).ids for seed in range(5)}
    assert len(others) > 1


def test_shots_need_labels_and_stand_alone(tmp_path: Path) -> None:
    """Without labels, beside a limit or below one they are refused; shapes have them too."""
    dot_files(tmp_path / "files", 2)
    (tmp_path / "bare.csv").write_text("path\nfiles/dot 00.png\nfiles/dot 01.png\n")
    for name, limit, shots, words in (
        (str(tmp_path / "bare.csv"), None, 1, "has no labels"),
        ("shapes", 4, 1, "one of the two"),
        ("shapes", None, 0, "shots is 0"),
    ):
        check_refused(words, load_dataset, name, limit=limit, shots=shots)
    labels = load_dataset("shapes", shots=2).labels
    assert labels is not None and set(Counter(labels).values()) == {2}


def test_names_tell_the_split() -> None:
    """Each split of each dataset has a name of its own by which it is found again."""
    names = [(entry, split) for entry in catalogue().values() for split in entry.splits]
    assert len({entry.name_of(split) for entry, split in names}) == len(names)
    for entry, split in names:
        assert find_split(entry.name_of(split)) == (entry, split)
    assert get_entry("dtd").name_of("test") == "dtd"  # as it always was
    assert find_split("shapes:fog:3") is None and find_split("dtd:fog") is None


@pytest.mark.parametrize("text", [DTD, FILES, f"{DTD}{FILES}"])
def test_training_images_go_with_their_dataset(
    text: str, small_blocks: None, root: Path, tmp_path: Path
) -> None:
    """They are the labelled images of the test set, and no source of their own."""
    test, train = tmp_path / "1", tmp_path / "0"
    stores = _encode(root, train, "train", 2), _encode(root, test, "test")
    [found] = _sources(tmp_path, text, *stores).values()
    assert (found.name, found.dataset, found.model) == ("dtd, RN50", "dtd", "RN50")
    assert (found.path, found.few) == (str(test), str(train))
    alone = _sources(tmp_path, text, train).values()
    assert all(each.missing for each in alone)


def test_the_best_labelled_images_are_taken(small_blocks: None, root: Path, tmp_path: Path) -> None:
    """Train before val, more before fewer, and never those of other weights."""
    test = _encode(root, tmp_path / "test", "test")
    wrong = _encode(root, tmp_path / "wrong", "train", tag=":yfcc15m")
    val = _encode(root, tmp_path / "val", "val")
    one = _encode(root, tmp_path / "one", "train", 1)
    two = _encode(root, tmp_path / "two", "train", 2)
    for there, best in (((wrong,), None), ((wrong, val), val), ((one, val), one),
                        ((wrong, one, two, val), two)):  # fmt: skip
        assert _sources(tmp_path, DTD, test, *there)["dtd, RN50"].few == (best and str(best))


def test_few_shot_rows_run_with_them(small_blocks: None, root: Path, tmp_path: Path) -> None:
    """The run reads the labelled images, the source names them, and ``--list`` shows them."""
    train = _encode(root, tmp_path / "train", "train", 2)
    test = _encode(root, tmp_path / "test", "test")
    made = _plan(tmp_path, test, train)
    [source] = made.outline.sources
    assert source.few == str(train) and all(cell.key for cell in made.outline.cells)
    [spec] = [each for each in made.specs if each.method == "tip_adapter"]
    assert spec.few is not None and spec.few.path == str(train)
    assert run_spec(spec).metrics["n_scored"] == 8
    words = ["bench", str(save_experiment(tmp_path, f"{FEW_ROWS}{DTD}")), "--list"]
    shown = called(*words, f"--data={test}", f"--data={train}").output
    assert f"dtd, RN50: {test}, labelled images {train}\n" in shown


def test_the_reason_names_the_command(small_blocks: None, root: Path, tmp_path: Path) -> None:
    """Without labelled images a few-shot row says how to make them, if there are any to make."""
    for store, words, others in (
        (_encode(root, tmp_path / "test", "test"),
         ["crg encode dtd --split train --shots 16", "--model RN50", "name STORE with --data"], []),
        (save_store(tmp_path / "store", "imagenet-v2"), ["few_features"], ["crg encode"]),
    ):  # fmt: skip
        outline = _plan(tmp_path, store).outline
        [reason] = {cell.reason for cell in outline.cells if cell.row == 1}
        assert all(each in str(reason) for each in words)
        assert not any(each in str(reason) for each in others)
