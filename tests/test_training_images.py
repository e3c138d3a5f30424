"""Labelled images of the catalogue: other splits, draws per class, and experiments with them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from click.testing import CliRunner

from crg.bench.design import read_design
from crg.bench.plan import Plan, plan
from crg.bench.sources import discover, find_sources
from crg.cli import main
from crg.datasets import drawn_indices, load_dataset
from crg.datasets.catalog import catalogue, find_split, get_entry
from crg.engine.worker import run_spec
from crg.results.schema import Source
from encoding_fakes import HashEncoder, dot_files, run
from encoding_fakes import small_blocks as small_blocks
from made_datasets import make_split_dataset, put_all, split_of
from made_experiments import FILES, save_experiment, save_store
from sentences import refused_in_one_sentence

ROWS = '[[row]]\nmethod = "tip_adapter"\noptions = { shots = 2 }\n'
CATALOGUED = '[[data]]\ndatasets = ["dtd"]\nmodels = ["RN50"]\n'


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A copy of DTD with images in every split."""
    make_split_dataset(tmp_path / "root", get_entry("dtd"), split_of(train=5, val=3, test=4))
    return tmp_path / "root"


def _encode(root: Path, out: Path, split: str, shots: int | None = None, tag: str = "") -> Path:
    images = load_dataset("dtd", root=root, split=split, shots=shots)
    run(images, out, HashEncoder(f"RN50{tag}", f"weights{tag}"))
    return out


def _sources(folder: Path, text: str, *data: Path) -> dict[str, Source]:
    design = read_design(save_experiment(folder, f"{ROWS}{text}"))
    return {each.name: each for each in find_sources(design, discover(data), folder / "bench")}


def _plan(folder: Path, *data: Path) -> Plan:
    design = read_design(save_experiment(folder, f"{ROWS}{FILES}"))
    return plan(design, find_sources(design, discover(data), folder), folder)


def test_shots_are_a_draw_of_each_class(tmp_path: Path) -> None:
    """At most so many of each class, by the seed; a smaller draw begins a larger one."""
    put_all(tmp_path / f"{name}/{n}.jpg" for name, count in (("a", 9), ("b", 2))
            for n in range(count))  # fmt: skip
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
        with refused_in_one_sentence(words):
            load_dataset(name, limit=limit, shots=shots)
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


@pytest.mark.parametrize("text", [CATALOGUED, FILES, f"{CATALOGUED}{FILES}"])
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
        assert _sources(tmp_path, CATALOGUED, test, *there)["dtd, RN50"].few == (best and str(best))


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
    words = ["bench", str(save_experiment(tmp_path, f"{ROWS}{CATALOGUED}")), "--list"]
    done = CliRunner().invoke(main, [*words, f"--data={test}", f"--data={train}"])
    assert f"dtd, RN50: {test}, labelled images {train}\n" in done.output, done.output


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
