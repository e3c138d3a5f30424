"""Where ``crg predict`` writes: its options, what is refused, and the files to continue with."""

from __future__ import annotations

import contextlib
import dataclasses
import shutil
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from crg import state_file
from crg.atomic import check_place, locked
from crg.cli.shared import F
from crg.encoders.base import library
from crg.images.reading import IMAGE_SUFFIXES
from crg.predict.answers import (
    AnswerFile,
    Layout,
    exists_already,
    kept_settings,
    layout_of,
    read_answers,
    resume_folder,
)
from crg.predict.lines import FIELDS, Form
from crg.predict.parquet import ParquetAnswers, read_parquet
from crg.predict.second_pass import gains_by_two
from crg.predict.sorting import By, Sorter, check_apart
from crg.types import InputError

FILE = click.Path(path_type=Path, dir_okay=False)
_FIRST_PASS = "first.jsonl"  # answers of the first of two passes, in the folder to continue with


def output_options(command: F) -> F:
    """Everything that decides what is written, and where."""
    for option in (
        click.option("--overwrite", is_flag=True,
                     help="Replace --out and --save-state if they exist."),
        click.option("--resume", is_flag=True,
                     help="Continue with --out where an earlier call stopped."),
        click.option("--load-state", type=FILE,
                     help="Continue with what an earlier stream learnt."),
        click.option("--save-state", type=FILE, help="Keep what is learnt in this file."),
        click.option("--passes", type=click.IntRange(1, 2), default=None,
                     help="2: learn from all images first, then answer all of them.  [default: "
                          "2 where the method gains by it, as anchored does; 1 for other methods, "
                          "a list on standard input, --watch and --load-state]"),
        click.option("--by", type=click.Choice(["copy", "link", "move"]), default=None,
                     help="How images get into the folders of --sort-into.  [default: copy]"),
        click.option("--sort-into", type=click.Path(path_type=Path, file_okay=False),
                     metavar="DIR", help="Put images into a folder per class below this one."),
        click.option("--unsure-below", type=click.FloatRange(0, 1), default=0.0, metavar="P",
                     help="Leave the label empty where its probability is below P."),
        click.option("--top", type=click.IntRange(min=1), metavar="N",
                     help="Write the N most probable classes, too."),
        click.option("--format", "layout", type=click.Choice(["jsonl", "csv", "parquet"]),
                     help="Form of the lines.  [default: by the suffix of --out, else jsonl]"),
        click.option("--out", type=FILE, help="Write to this file.  [default: standard output]"),
    ):  # fmt: skip
        command = option(command)
    return command


@dataclass(frozen=True)
class Outputs:
    """What the options say."""

    out: Path | None
    layout: Layout | None
    top: int | None
    unsure_below: float
    sort_into: Path | None
    by: By | None
    passes: int | None  # None until ``with_passes``
    save_state: Path | None
    load_state: Path | None
    resume: bool
    overwrite: bool

    @classmethod
    def taken_from(cls, given: dict[str, Any]) -> Outputs:
        """What is ours of the options, which is taken out of them."""
        return cls(**{each.name: given.pop(each.name) for each in dataclasses.fields(cls)})

    def with_passes(self, method: str, live: bool) -> Outputs:
        """The same with a number of passes: as asked for, as a file was begun, or the default.

        ``live`` says that nobody knows how many images there will be.
        """
        kept = kept_settings(self.out) if self.resume and self.out else {}
        if self.passes is not None or kept.get("passes") in (1, 2):
            return dataclasses.replace(self, passes=self.passes or kept["passes"])
        continues = self.resume and self.out is not None and self.out.exists()
        once = live or continues or self.load_state is not None or not gains_by_two(method)
        return dataclasses.replace(self, passes=1 if once else 2)

    @property
    def two_passes(self) -> bool:
        """Whether all images are learnt before the first one is answered."""
        return self.passes == 2

    @property
    def form(self) -> Form:
        """What of an answer is written down."""
        return Form(self.top or 0, self.unsure_below, self.sort_into is not None)

    @property
    def settings(self) -> dict[str, Any]:
        """What must be the same when a file is continued."""
        names = ("top", "unsure_below", "passes", "by")
        folder = self.sort_into and str(self.sort_into)
        return {**{name: getattr(self, name) for name in names}, "sort_into": folder}

    @property
    def kept(self) -> Path | None:
        """The folder with all that is needed to continue."""
        return None if self.out is None else resume_folder(self.out)

    def sorter(self, class_names: Sequence[str]) -> Sorter | None:
        """What sorts images, if any are to be sorted."""
        if self.sort_into is None:
            return None
        return Sorter(self.sort_into, self.by or "copy", class_names)

    def hold(self, held: contextlib.ExitStack) -> Path | None:
        """Lock what is written; the folder to continue with."""
        places = (self.out, self.save_state, self.sort_into and self.sort_into / "images")
        if self.sort_into is not None:
            self.sort_into.mkdir(parents=True, exist_ok=True)
        for place in filter(None, places):
            held.enter_context(locked(place))
        if self.out is None and self.two_passes:
            return Path(held.enter_context(tempfile.TemporaryDirectory()))
        return self.kept

    def open(self, settings: dict[str, Any], columns: Sequence[str]) -> AnswerFile:
        """The file of answers, ``columns`` those of a table; what is replaced goes only now."""
        if self.out is not None and self.overwrite:
            self.out.unlink(missing_ok=True)
            shutil.rmtree(resume_folder(self.out), ignore_errors=True)
        layout, settings = layout_of(self.out, self.layout), {**settings, **self.settings}
        if layout != "parquet":
            target = self.out or sys.stdout
            return AnswerFile(target, layout, self.resume, settings, columns)
        assert self.out is not None  # as was checked
        return ParquetAnswers(self.out, self.resume, settings)

    def started_at(self, n_steps: int, continued: bool) -> int:
        """How many images had been learnt before the first answer, by a state that was loaded."""
        kept = kept_settings(self.out) if continued and self.out is not None else {}
        before = kept.get("started_at")
        return before if type(before) is int else n_steps

    def first_pass(self, kept: Path) -> Path:
        """Where the answers of the first of two passes are."""
        return kept / _FIRST_PASS

    def answered(self) -> set[str]:
        """The images that an earlier call has answered, which may have been moved since."""
        if not (self.resume and self.out is not None and self.kept is not None):
            return set()
        layout = layout_of(self.out, self.layout)
        lines = self.kept / "answers.jsonl" if layout == "parquet" else self.out
        found = read_answers(lines, "csv" if layout == "csv" else "jsonl") if lines.exists() else []
        first = self.first_pass(self.kept)
        found += read_answers(first, "jsonl") if first.exists() else []
        return {line["path"] for line in found}

    def check(self, images: Sequence[str]) -> None:
        """Refuse what does not go together, and what would overwrite something else."""
        if self.resume and self.out is None:
            raise InputError(
                "--resume needs the file that the earlier call wrote: name it with --out."
            )
        if self.resume and self.overwrite:
            raise InputError("--resume keeps what --overwrite replaces: use one of them.")
        if layout_of(self.out, self.layout) == "parquet":
            if self.out is None:
                raise InputError("Parquet is no text for standard output: name a file with --out.")
            library("pyarrow.parquet", "parquet")
        if self.two_passes and self.load_state is not None:
            raise InputError("Two passes learn from the start: leave out --load-state or --passes.")
        if self.sort_into is not None:
            check_apart(self.sort_into, images)
        elif self.by is not None:
            raise InputError("--by says how images are sorted: add --sort-into or leave it out.")
        self._check_names(images)
        if self.out is not None and self.out.exists() and not self.resume:
            if not self.overwrite:
                raise exists_already(self.out)
            self._check_answers(self.out)
        if self.save_state is not None:
            self._check_save_state(self.save_state)

    def _check_names(self, images: Sequence[str]) -> None:
        inputs = {Path(each).resolve() for each in images}
        for option, output in (("--out", self.out), ("--save-state", self.save_state)):
            if output is not None and output.resolve() in inputs:
                raise InputError(f"{option} {output} is among the images: choose another name.")
        if self.out and self.save_state and self.out.resolve() == self.save_state.resolve():
            raise InputError("--out and --save-state are the same file: choose two names.")

    def _check_answers(self, out: Path) -> None:
        """What crg did not write is not replaced; an empty file holds nothing to lose."""
        layout = layout_of(out, self.layout)
        try:
            if layout == "parquet":
                read_parquet(out)
            elif out.stat().st_size and not read_answers(out, layout) and not _is_table(out):
                raise InputError("it has no line.")
        except InputError:
            raise InputError(
                f"{out} exists and holds no answers: choose another name with --out."
            ) from None

    def _check_save_state(self, path: Path) -> None:
        check_place(path)
        if path.suffix.lower() in IMAGE_SUFFIXES:
            raise InputError(f"--save-state {path} is named like an image: choose another name.")
        if not path.exists():
            return
        if not state_file.is_state(path):
            raise InputError(f"{path} exists and is not a saved state: choose another name.")
        same = self.load_state is not None and self.load_state.resolve() == path.resolve()
        if not (same or self.resume or self.overwrite):
            raise InputError(
                f"{path} exists already: continue with it by --load-state or --resume, or "
                "replace it by --overwrite."
            )


def _is_table(path: Path) -> bool:
    """Whether a file begins as a table of answers does."""
    return path.read_bytes().startswith(",".join(FIELDS[:2]).encode())
