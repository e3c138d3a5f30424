"""Numbers of papers for what is not there, and files of numbers that a user brings."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from crg.cli import main
from crg.report.evidence import Study, read_studies
from crg.report.evidence.paper_files import with_papers
from crg.report.study_page import study_page
from crg.report.tables import latex, markdown
from crg.results.outline import Row, Source
from crg.results.papers import bundled_papers
from crg.types import InputError
from made_results import PLAIN, Book, share

HERE = Source("imagenet-a, ViT-B-16", dataset="imagenet-a", n_samples=200, n_classes=4, n_views=1,
              model="ViT-B-16:openai", prompts=("a {}.", "one {}."))  # fmt: skip
ABSENT = tuple(
    Source(f"{name}, RN50", name, model="RN50", missing="Not there: run crg encode.")
    for name in ("imagenet", "imagenet-v2")
)
OWN = """
[sources]
mine = "my own paper"

[[table]]
experiment = "robustness"
backbone = "ViT-B/16"
source = "mine"
columns = ["imagenet-a", "average"]
[table.rows]
crg = [64.5, 70]
tda = [60.0, 65.0]

[[protocol]]
source = "mine"
note = "Tested on Sundays."

[[slip]]
paper = "mine"
methods = ["tda"]
note = "Rounded."
"""


def made(folder: Path, reported: str = "robustness") -> Path:
    """A results file in which two datasets are missing and two rows were run."""
    book = Book([Row("crg", "crg"), Row("tda", "tda")], sources=(HERE, *ABSENT), reported=reported)
    for label in ("zero_shot", "crg", "tda"):
        book.add(label, share(120), base=share(100))
    return book.write(folder / "results.jsonl")


def study_of(folder: Path, reported: str = "robustness") -> Study:
    """What that says."""
    [study] = read_studies([made(folder, reported)])
    return study


def own(folder: Path, text: str = OWN) -> Path:
    """A file of papers' numbers."""
    path = folder / "papers.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_what_is_missing_has_the_numbers_of_papers(tmp_path: Path) -> None:
    """A table per model: every method with its printed numbers, and the average as printed."""
    [table] = study_of(tmp_path).printed
    assert (table.model, table.datasets) == ("RN50", ("imagenet", "imagenet-v2", "average"))
    for method, cells in table.rows.items():
        printed = [bundled_papers().number("robustness", "RN50", each, method)
                   for each in table.datasets]  # fmt: skip
        assert [cell.reported for cell in cells] == printed
    assert {"zero_shot_one_prompt", "dpe"} < set(table.rows)
    assert table.rows["crg"][0].reported is None and "1.85" in table.rows["crg"][0].said[0]


def test_an_experiment_without_reported_numbers_has_no_such_table(tmp_path: Path) -> None:
    """Nothing is printed for it, or nothing is known of it."""
    assert study_of(tmp_path, "").printed == ()
    assert study_of(tmp_path, "queue_size").printed == ()


@pytest.mark.parametrize("layout", [markdown, latex])
def test_the_text_tables_say_what_is_odd(tmp_path: Path, layout: object) -> None:
    """Numbers stand with their marks; what they mean stands below, with the paper above."""
    assert callable(layout)
    text = str(layout([study_of(tmp_path)]))
    part = text[text.index("What papers print, RN50") :]
    assert "Nothing here was measured" in part and "the DPE paper" in part
    row = next(line for line in part.splitlines() if line.lstrip("| ").startswith("coop"))
    assert "63.33" in row and "55.40" in row and "46.61" in row
    assert "ImageNet-R accuracy in its column" in part and "not at hand" in part


def test_the_page_folds_them_away(tmp_path: Path) -> None:
    """They stand below what was measured, with footnotes, in a table that can be sorted."""
    page = study_page([study_of(tmp_path)])
    assert page.index("imagenet-a, ViT-B-16") < page.index("What papers print for the datasets")
    assert ">56.72<sup>" in page and "<td>not at hand<sup>" in page
    assert "What papers print" not in study_page([study_of(tmp_path, "")])


def test_a_users_numbers_come_first(tmp_path: Path) -> None:
    """They are found by any spelling of the backbone, win over bundled ones, and keep notes."""
    papers = with_papers(own(tmp_path))
    crg, tda = (papers.number("robustness", "ViT-B-16:openai", "imagenet-a", m)
                for m in ("crg", "tda"))  # fmt: skip
    assert crg is not None and (crg.value, crg.source) == (64.5, "my own paper")
    assert crg.notes == ("Tested on Sundays.",)
    assert tda is not None and tda.value == 60.0
    assert tda.notes == ("Rounded.", "Tested on Sundays.")
    other = papers.number("robustness", "RN50", "imagenet-a", "dpe")
    assert other == bundled_papers().number("robustness", "RN50", "imagenet-a", "dpe")


def test_what_is_said_of_a_missing_number_goes_when_it_comes(tmp_path: Path) -> None:
    """The gain that a summary reports stands only while nobody brings the number."""
    brought = OWN.replace('"imagenet-a", "average"', '"imagenet", "average"')
    entry = ("robustness", "ViT-B-16", "imagenet", "crg")
    assert bundled_papers().stated(*entry) and not with_papers(own(tmp_path, brought)).stated(
        *entry
    )


def test_the_command_takes_them(tmp_path: Path) -> None:
    """``--reported`` puts them beside what was measured, in the page and in text."""
    arguments = ["report", str(made(tmp_path)), "--reported", str(own(tmp_path))]
    text = CliRunner().invoke(main, [*arguments, "--format", "markdown"])
    assert text.exit_code == 0
    row = next(line for line in text.stdout.splitlines() if line.startswith(("| crg", "| **crg")))
    assert "64.50" in row and "my own paper." in text.stdout
    page = CliRunner().invoke(main, [*arguments, "--out", str(tmp_path / "page.html")])
    assert page.exit_code == 0 and "64.50<sup>" in (tmp_path / "page.html").read_text("utf-8")


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("", "it has no numbers: write them below [[table]]."),
        ("table = 3", "table is 3: write [[table]] above each of them."),
        (OWN.replace('"robustness"', '"robust"'), "table 1: experiment is 'robust': did you mean"),
        (OWN.replace('source = "mine"\ncolumns', 'source = "its"\ncolumns'),
         "table 1: source is 'its': name one of the keys below [sources]."),
        (OWN.replace("[64.5, 70]", "[64.5]"), "table 1: crg is [64.5]: give 2 numbers"),
        (OWN.replace("[64.5, 70]", "[64.5, nan]"), "crg has nan: give a percentage"),
        (OWN.replace("[64.5, 70]", "[64.5, true]"), "crg has True: give a percentage"),
        (OWN.replace("[64.5, 70]", "[64.5, 645]"), "crg has 645: give a percentage"),
        (OWN.replace('"imagenet-a", "average"', '"dtd", "dtd"'), "name each dataset once."),
        (OWN.replace('note = "Rounded."', 'noted = "Rounded."'), "slip 1: note is missing"),
        (OWN.replace('methods = ["tda"]', 'methods = "tda"'), "slip 1: methods is 'tda'"),
        (OWN.replace('paper = "mine"', 'paper = "mine"\npages = 3'), "there is no key 'pages'"),
        (OWN.replace('"my own paper"', "7"), "source mine is 7: give the words"),
        (OWN.replace("[[slip]]", "[slip"), "is no TOML"),
    ],
)  # fmt: skip
def test_mistakes_are_one_sentence(tmp_path: Path, wrong: str, said: str) -> None:
    """Each mistake is reported with its place, before any results are read."""
    with pytest.raises(InputError) as caught:
        with_papers(own(tmp_path, wrong))
    assert said in str(caught.value) and str(caught.value).startswith(str(tmp_path / "papers.toml"))


def test_a_file_that_is_not_there_is_reported(tmp_path: Path) -> None:
    """The sentence names the file and the remedy, and nothing is written."""
    missing = str(tmp_path / "no.toml")
    outcome = CliRunner().invoke(main, ["report", str(tmp_path), "--reported", missing])
    assert outcome.exit_code != 0 and not list(tmp_path.iterdir())
    with pytest.raises(InputError, match="does not exist: name the TOML file"):
        with_papers(missing)


def test_the_file_in_the_documents_can_be_used(tmp_path: Path) -> None:
    """The example is read as it stands, and its numbers are found."""
    document = Path(__file__).parents[1].joinpath("docs", "benchmark.md").read_text("utf-8")
    example = document.split("## Numbers of other papers")[1].split("```toml\n")[1].split("```")[0]
    found = with_papers(own(tmp_path, example)).number("robustness", "ViT-B-16", "imagenet", "crg")
    assert found is not None and found.source in example
    assert f"[{found.value}," in example and found.notes[0] in example


def test_a_source_of_no_model_is_left_out(tmp_path: Path) -> None:
    """What is missing without a model, such as a broken file, has no printed numbers."""
    broken = Source("odd", "imagenet", missing="It cannot be read.")
    book = Book([Row("crg", "crg")], sources=(PLAIN, broken), reported="robustness")
    book.add("crg", share(120), base=share(100))
    assert book.read(tmp_path).printed == ()
