"""One call of ``crg predict``: what was asked for, what is refused, and the work to do."""

from __future__ import annotations

import contextlib
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from crg import state_file
from crg.atomic import check_place, locked
from crg.classifier import Classifier
from crg.extras import library
from crg.images.reading import IMAGE_SUFFIXES
from crg.images.views import Augment
from crg.methods.registry import DEFAULT
from crg.predict.answers import (
    FIELDS,
    AnswerFile,
    Layout,
    appended,
    columns_for,
    exists_already,
    kept_settings,
    layout_of,
    read_answers,
    resume_folder,
)
from crg.predict.corrections import check as check_corrections
from crg.predict.corrections import digest_of, read_corrections
from crg.predict.files import STANDARD_INPUT, iter_arrivals, iter_lines, list_images, read_names
from crg.predict.second_pass import gains_by_two, second_pass
from crg.predict.sorting import By, Sorter, check_apart
from crg.predict.stream import ImageStream, Journal, Output
from crg.prompts import PHOTO, Mode
from crg.threads import processors
from crg.types import InputError

SECONDS_BETWEEN_NOTES = 10.0  # of a watch that is busy
FIRST_PASS = "first pass"

Note: TypeAlias = Callable[[str], None]
Part: TypeAlias = tuple[str, int, Iterator[Any]]  # its name, how many images at most, the work


@dataclass(frozen=True, kw_only=True)
class PredictJob:
    """What to predict, how, and where answers go; the fields are the options of ``crg predict``."""

    images: tuple[str, ...]
    classes: str | None = None
    method: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    model: str | None = None
    text_features: str | None = None
    templates: tuple[str, ...] = ()
    descriptions: Path | None = None
    prompts: Mode = "template"
    views: int = 1
    augment: Augment = "crops"
    device: str | None = None
    few: str | None = None
    out: Path | None = None
    layout: Layout | None = None  # None: by the suffix of ``out``
    top: int | None = None
    unsure_below: float = 0.0
    sort_into: Path | None = None
    by: By | None = None
    passes: int | None = None  # None: what suits method and images
    save_state: Path | None = None
    load_state: Path | None = None
    resume: bool = False
    overwrite: bool = False
    corrections: Path | None = None
    skip_unreadable: bool = False
    watch: bool = False
    idle: float | None = None

    def __post_init__(self) -> None:
        """Choose the number of passes, and refuse options that contradict each other."""
        object.__setattr__(self, "passes", self.passes or self._default_passes())
        self._check_stream()
        self._check_outputs()

    @property
    def is_live(self) -> bool:
        """Whether images are named one by one, so that their number is unknown."""
        return self.watch or STANDARD_INPUT in self.images

    @property
    def checkpoint(self) -> Path | None:
        """Where the state is saved as images are learnt."""
        if self.save_state is not None and (self.passes == 1 or self.out is None):
            return self.save_state
        return None if self.out is None else resume_folder(self.out) / "state"

    @property
    def settings(self) -> dict[str, Any]:
        """What must be the same when a file is continued, beside the classifier's settings."""
        return {"top": self.top, "unsure_below": self.unsure_below, "passes": self.passes,
                "by": self.by, "sort_into": self.sort_into and str(self.sort_into)}  # fmt: skip

    def how_to_continue(self) -> str:
        """Name the files that a stopped job leaves behind, and how to continue."""
        saved = [f"the answers are in {self.out}"] if self.out else []
        if self.save_state is not None and self.checkpoint == self.save_state:
            saved.append(f"what was learnt is in {self.save_state}")
        said = ", and ".join(saved)
        said = f" {said[0].upper()}{said[1:]}." if said else ""
        return f"{said} The same command with --resume continues." if self.out else said

    def answered(self) -> set[str]:
        """The images that an earlier call has answered, which may have been moved since."""
        if not self.resume or self.out is None:
            return set()
        first = resume_folder(self.out) / "first.jsonl"
        found = appended(self.out, layout_of(self.out, self.layout)) + appended(first, "jsonl")
        return {line["path"] for line in found}

    def _default_passes(self) -> int:
        """As many as the file was begun with; else two where they can be made and help."""
        kept = kept_settings(self.out) if self.resume and self.out else {}
        if kept.get("passes") in (1, 2):
            return int(kept["passes"])
        continues = self.resume and self.out is not None and self.out.exists()
        once = self.is_live or continues or self.load_state is not None
        return 2 if not once and gains_by_two(self.method or DEFAULT) else 1

    def _check_stream(self) -> None:
        if STANDARD_INPUT in self.images and (len(self.images) > 1 or self.watch):
            raise InputError(
                "A list on standard input stands alone: leave out the rest and --watch."
            )
        if self.idle is not None and not self.watch:
            raise InputError("--idle ends a watch: add --watch or leave it out.")
        if self.watch and self.passes == 2:
            raise InputError("A watch has no end, after which a second pass could begin: leave out "
                             "--watch or --passes 2.")  # fmt: skip
        if self.passes == 2 and self.load_state is not None:
            raise InputError("Two passes learn from the start: leave out --load-state or --passes.")
        if self.text_features and (self.templates or self.descriptions):
            raise InputError("--text-features stands in for prompts: leave it out, or --template "
                             "and --descriptions.")  # fmt: skip

    def _check_outputs(self) -> None:
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
        if self.sort_into is not None:
            check_apart(self.sort_into, self.images)
        elif self.by is not None:
            raise InputError("--by says how images are sorted: add --sort-into or leave it out.")
        self._check_names()
        if self.out is not None and self.out.exists() and not self.resume:
            if not self.overwrite:
                raise exists_already(self.out)
            self._check_answers(self.out)
        if self.save_state is not None:
            self._check_save_state(self.save_state)

    def _check_names(self) -> None:
        inputs = {Path(each).resolve() for each in self.images}
        for option, output in (("--out", self.out), ("--save-state", self.save_state)):
            if output is not None and output.resolve() in inputs:
                raise InputError(f"{option} {output} is among the images: choose another name.")
        if self.out and self.save_state and self.out.resolve() == self.save_state.resolve():
            raise InputError("--out and --save-state are the same file: choose two names.")

    def _check_answers(self, out: Path) -> None:
        """What crg did not write is not replaced; an empty file holds nothing to lose."""
        is_table = out.read_bytes().startswith(",".join(FIELDS[:2]).encode())
        with contextlib.suppress(InputError):
            if is_table or not out.stat().st_size or read_answers(out, layout_of(out, self.layout)):
                return
        raise InputError(f"{out} exists and holds no answers: choose another name with --out.")

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


@contextlib.contextmanager
def opened(job: PredictJob, on_note: Note) -> Iterator[tuple[Output, list[Part]]]:
    """Load the model of a job and open its files; the output, and the parts of the work."""
    names = read_names(job.classes)
    if not (names or job.load_state or job.resume or job.text_features):
        raise InputError("There are no class names: give them by --classes.")
    corrections = {} if job.corrections is None else read_corrections(job.corrections)
    listed = None if job.is_live else list_images(job.images, job.answered())
    if not (listed or listed is None or job.resume):
        raise InputError("No images were found: give a folder, a glob or files that hold some.")
    with contextlib.ExitStack() as held:
        kept = _hold(job, held)
        continued = bool(job.resume and job.checkpoint and job.checkpoint.exists())
        classifier = _classifier(job, names, job.checkpoint if continued else None, on_note)
        if corrections and not job.resume:
            check_corrections(corrections, classifier.task.class_names)
        started_at = classifier.adapter.n_steps
        if continued and job.out is not None:
            before = kept_settings(job.out).get("started_at")
            started_at = before if type(before) is int else started_at
        settings = {**classifier.settings, **job.settings, "started_at": started_at,
                    "corrections": digest_of(corrections) if corrections else None}  # fmt: skip
        output = _output(job, settings, classifier, bool(corrections), held)
        stream = ImageStream(
            classifier,
            output,
            job.checkpoint,
            None if kept is None else Journal(kept / "journal"),
            skip_unreadable=job.skip_unreadable,
            remedy=f"add --skip-unreadable{'; --resume continues' if job.out else ''}",
            workers=processors(),
            corrections=corrections,
            knows_corrections=continued
            and (job.checkpoint != job.save_state or output.has_corrections),
            started_at=started_at,
        )
        paths = _live_paths(job, output, on_note) if listed is None else listed
        if kept is not None and job.passes == 2:
            yield output, _two_passes(job, stream, kept, paths, len(listed or ()), held, on_note)
        else:
            yield output, [("images", len(listed or ()), stream.run(paths, job.is_live))]


def _hold(job: PredictJob, held: contextlib.ExitStack) -> Path | None:
    """Lock what is written; the folder for what a second pass or a later call needs."""
    if job.sort_into is not None:
        job.sort_into.mkdir(parents=True, exist_ok=True)
    for place in (job.out, job.save_state, job.sort_into and job.sort_into / "images"):
        if place is not None:
            held.enter_context(locked(place))
    if job.out is None and job.passes == 2:
        return Path(held.enter_context(tempfile.TemporaryDirectory()))
    return None if job.out is None else resume_folder(job.out)


def _classifier(
    job: PredictJob, names: tuple[str, ...] | None, checkpoint: Path | None, on_note: Note
) -> Classifier:
    state = checkpoint or job.load_state
    if job.model is None and state is None:
        on_note("the bundled model mini knows rendered shapes only; for photographs name another "
                "with --model.")  # fmt: skip
    return Classifier(
        model=job.model,
        classes=names,
        method=job.method,
        options=job.options,
        templates=job.templates or (PHOTO,),
        descriptions=job.descriptions,
        prompts=job.prompts,
        views=job.views,
        augment=job.augment,
        device=job.device,
        state=state,
        few=job.few,
        text_features=job.text_features,
        on_note=on_note,
    )


def _output(
    job: PredictJob,
    settings: Mapping[str, Any],
    classifier: Classifier,
    corrected: bool,
    held: contextlib.ExitStack,
) -> Output:
    """The file of answers; an older one is removed only now, when everything has been checked."""
    if job.out is not None and job.overwrite:
        job.out.unlink(missing_ok=True)
        shutil.rmtree(resume_folder(job.out), ignore_errors=True)
    columns = columns_for(job.top or 0, job.unsure_below > 0, corrected, job.sort_into is not None)
    layout = layout_of(job.out, job.layout)
    answers = AnswerFile(job.out or sys.stdout, layout, job.resume, settings, columns)
    sorter = None
    if job.sort_into is not None:
        sorter = Sorter(job.sort_into, job.by or "copy", classifier.task.class_names)
    return Output(held.enter_context(answers), job.top or 0, job.unsure_below, sorter)


def _two_passes(
    job: PredictJob,
    stream: ImageStream,
    kept: Path,
    paths: Iterable[Path | None],
    total: int,
    held: contextlib.ExitStack,
    on_note: Note,
) -> list[Part]:
    """The first pass, then the second one, which is closed to new images once it has begun."""
    output, first = stream.output, kept / "first.jsonl"
    learnt = Output(held.enter_context(AnswerFile(first, "jsonl", first.exists())))
    features = Journal(kept / "features", keep_all=True)
    stream.output, stream.journal = learnt, features
    if output.answers.before:
        if any(path is not None and learnt.is_new(path) for path in paths):
            on_note("images that came after the first pass are left out: --overwrite starts over.")
        paths, total = [], 0

    def answer_all() -> Iterator[Any]:
        lines = read_answers(first)
        yield from second_pass(stream.classifier, lines, features, output, stream.workers)
        if job.save_state is not None:
            stream.classifier.save(job.save_state)
        features.clear()

    return [(FIRST_PASS, total, stream.run(paths, job.is_live)),
            ("second pass", total, answer_all())]  # fmt: skip


def _live_paths(job: PredictJob, output: Output, on_note: Note) -> Iterator[Path | None]:
    if not job.watch:
        yield from iter_lines(sys.stdin)
        return
    list_images(job.images)  # what is not there at the start is refused
    noted = time.monotonic()
    for path in iter_arrivals(lambda: list_images(job.images), idle=job.idle):
        if path is None or time.monotonic() - noted >= SECONDS_BETWEEN_NOTES:
            on_note(f"watching {', '.join(job.images)}, {output.counts['answered']} answered.")
            noted = time.monotonic()
        yield path
