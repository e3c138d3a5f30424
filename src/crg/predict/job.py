"""One call of ``crg predict``: what was asked for, what is refused, and the work to do."""

from __future__ import annotations

import contextlib
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from os.path import realpath  # which a loop of links does not stop
from pathlib import Path
from typing import Any, Literal, TypeAlias

from crg import state_file
from crg.answer import COLUMNS
from crg.atomic import check_place, locked
from crg.classifier import Classifier
from crg.encoding import EncodingProgress
from crg.extras import library
from crg.images.reading import IMAGE_SUFFIXES, shown
from crg.images.views import Augment
from crg.methods.base import Method
from crg.methods.registry import DEFAULT, get_method
from crg.parts.decisions import NoneOfThese
from crg.predict.answers import (
    AnswerFile,
    Layout,
    appended,
    kept_settings,
    layout_of,
    read_answers,
    resume_folder,
)
from crg.predict.corrections import (
    FOLDERS,
    label_studio_files,
    read_corrections,
    true_labels,
    write_label_studio,
)
from crg.predict.corrections import check as check_corrections
from crg.predict.files import STANDARD_INPUT, iter_arrivals, iter_lines, list_images, read_names
from crg.predict.lines import PrintedTable
from crg.predict.sorting import By, Sorter, check_apart
from crg.predict.stream import ImageStream, Journal, kept_features, second_pass
from crg.prompts import PHOTO, Mode
from crg.threads import processors
from crg.types import InputError

SECONDS_BETWEEN_NOTES = 10.0  # of a watch that is busy
FIRST_PASS = "first pass"

Note: TypeAlias = Callable[[str], None]
Part: TypeAlias = tuple[str, int, Iterator[Any]]  # its name, how many images at most, the work
# The fields of a job that are arguments of the classifier under the same name.
_FOR_CLASSIFIER = ("model", "method", "options", "descriptions", "prompts", "views", "augment",
                   "device", "few", "text_features", "none_of_these", "sets")  # fmt: skip


@dataclass(kw_only=True)
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
    features: Path | None = None
    few: str | None = None
    out: Path | None = None
    layout: Layout | None = None  # None: by the suffix of ``out``
    top: int | None = None
    unsure_below: float = 0.0
    none_of_these: NoneOfThese = None
    sets: float | None = None
    sort_into: Path | None = None
    by: By | None = None
    passes: int | None = None  # None: what suits method and images
    save_state: Path | None = None
    load_state: Path | None = None
    resume: bool = False
    overwrite: bool = False
    corrections: Path | None = None
    truth: str | None = None  # a file, or ``folders``
    export: Literal["label-studio"] | None = None
    probabilities: Path | None = None
    strict: bool = False  # stop at the first image that cannot be read
    watch: bool = False
    idle: float | None = None

    def __post_init__(self) -> None:
        """Choose format and passes, and refuse options that contradict each other."""
        self.layout = layout_of(self.out, self.layout)
        self.passes = self.passes or self._default_passes()
        self._check_options()
        self._check_outputs()

    @property
    def is_live(self) -> bool:
        """Whether images are named one by one, so that their number is unknown."""
        return self.watch or STANDARD_INPUT in self.images

    @property
    def states(self) -> list[Path]:
        """Where the state is saved as images are learnt; the first one is there to be resumed."""
        kept = None if self.out is None else resume_folder(self.out) / "state"
        return [path for path in (kept, self.save_state) if path is not None]

    def how_to_continue(self) -> str:
        """Name the files that a stopped job leaves behind, and how to continue."""
        said = f" What was learnt is in {self.save_state}." if self.save_state else ""
        if self.out is None:
            return said
        return f" The answers are in {self.out}.{said} The same command with --resume continues."

    def _default_passes(self) -> int:
        """As many as the file was begun with; else two where they can be made and help."""
        kept = kept_settings(self.out) if self.resume and self.out else {}
        if kept.get("passes") in (1, 2):
            return int(kept["passes"])
        continues = self.resume and self.out is not None and self.out.exists()
        once = self.is_live or continues or self.load_state is not None
        finish = get_method(self.method or DEFAULT).finish  # which learns images better together
        return 1 if once or finish is Method.finish else 2

    def _check_options(self) -> None:
        """Refuse options that do not go together."""
        is_listed = STANDARD_INPUT in self.images
        for is_wrong, sentence in (
            (is_listed and (len(self.images) > 1 or self.watch),
             "A list on standard input stands alone: leave out the rest and --watch."),
            (is_listed and sys.stdin is None,
             "Standard input is closed: send a list of images to it, or name them."),
            (self.idle is not None and not self.watch,
             "--idle ends a watch: add --watch or leave it out."),
            (self.features is not None and self.is_live,
             "--features keeps a list of images that is complete: leave it out, or --watch and "
             "standard input."),
            (self.watch and self.passes == 2,
             "A watch has no end, after which a second pass could begin: leave out --watch or "
             "--passes 2."),
            (self.passes == 2 and self.load_state is not None,
             "Two passes learn from the start: leave out --load-state or --passes."),
            (self.text_features and (self.templates or self.descriptions),
             "--text-features stands in for prompts: leave it out, or --template and "
             "--descriptions."),
            (self.resume and self.out is None,
             "--resume needs the file that the earlier call wrote: name it with --out."),
            (self.resume and self.overwrite,
             "--resume keeps what --overwrite replaces: use one of them."),
            (self.layout == "parquet" and self.out is None,
             "Parquet is no text for standard output: name a file with --out."),
            (self.layout == "table" and self.out is not None,
             "A table is for people, not for a file: leave out --out, or use --format csv."),
            (self.by is not None and self.sort_into is None,
             "--by says how images are sorted: add --sort-into or leave it out."),
            ((self.export or self.probabilities) and self.out is None,
             "--export and --probabilities go with a file of answers: name it with --out."),
            (self.probabilities and self.probabilities.suffix != ".npy",
             f"--probabilities {self.probabilities} is no NumPy file: end its name with .npy."),
            (self.out and self.save_state and realpath(self.out) == realpath(self.save_state),
             "--out and --save-state are the same file: choose two names."),
        ):  # fmt: skip
            if is_wrong:
                raise InputError(sentence)

    def _check_outputs(self) -> None:
        """Refuse outputs that would overwrite something else or could not be written."""
        if self.layout == "parquet":
            library("pyarrow.parquet", "parquet")
        if self.sort_into is not None:
            check_apart(self.sort_into, self.images)
        inputs = set(map(realpath, self.images))
        for option, output in (("--out", self.out), ("--save-state", self.save_state)):
            if output is not None and realpath(output) in inputs:
                raise InputError(f"{option} {output} is among the images: choose another name.")
        if self.out is not None and self.out.exists() and not self.resume:
            self._check_out(self.out)
        if self.save_state is not None:
            self._check_save_state(self.save_state)
        tasks = label_studio_files(self.out) if self.export and self.out else ()
        for path in (*tasks, *filter(None, [self.probabilities])):
            check_place(path)
            if path.exists() and not (self.resume or self.overwrite):
                raise InputError(f"{path} exists already: replace it by --overwrite or choose "
                                 "another name.")  # fmt: skip

    def _check_out(self, out: Path) -> None:
        """What crg did not write is not replaced; an empty file holds nothing to lose."""
        if not self.overwrite:
            raise InputError(f"{out} exists already: continue with it by --resume, replace it by "
                             "--overwrite or choose another name.")  # fmt: skip
        is_table = out.read_bytes().startswith(",".join(COLUMNS[:2]).encode())
        with contextlib.suppress(InputError):
            if is_table or not out.stat().st_size or read_answers(out, self.layout):
                return
        raise InputError(f"{out} exists and holds no answers: choose another name with --out.")

    def _check_save_state(self, path: Path) -> None:
        check_place(path)
        if path.suffix.lower() in IMAGE_SUFFIXES:
            raise InputError(f"--save-state {path} is named like an image: choose another name.")
        if path.exists() and not state_file.is_state(path):
            raise InputError(f"{path} exists and is not a saved state: choose another name.")
        same = self.load_state is not None and realpath(self.load_state) == realpath(path)
        if path.exists() and not (same or self.resume or self.overwrite):
            raise InputError(f"{path} exists already: continue with it by --load-state or "
                             "--resume, or replace it by --overwrite.")  # fmt: skip


@contextlib.contextmanager
def opened(
    job: PredictJob,
    on_note: Note,
    on_progress: Callable[[EncodingProgress], None] = lambda progress: None,
) -> Iterator[tuple[AnswerFile, list[Part]]]:
    """Load the model of a job and open its files; the answers, and the parts of the work.

    ``on_progress`` gets the progress of a store of features, if one is wanted.
    """
    names = read_names(job.classes)
    corrections = {} if job.corrections is None else read_corrections(job.corrections)
    if job.truth not in (None, FOLDERS):
        read_corrections(Path(job.truth))  # refuses before the model is loaded
    listed = None if job.is_live else list_images(job.images, _answered(job))
    if not (listed or listed is None or job.resume):
        given = shown(" ".join(job.images)[:200])
        raise InputError(f"No images were found in {given}: give a folder or a glob with some.")
    with contextlib.ExitStack() as held:
        kept = _hold(job, held)
        checkpoint = job.states[0] if job.resume and job.states[0].exists() else None
        classifier = _classifier(job, names, checkpoint, on_note)
        if corrections and not checkpoint:
            check_corrections(corrections, classifier.task.class_names)
        if job.truth is not None and listed is not None:
            true_labels(job.truth, map(str, listed), classifier.task.class_names)
        before = kept_settings(job.out).get("started_at") if job.out and checkpoint else None
        started_at = before if type(before) is int else classifier.adapter.n_steps
        features = None
        if job.features is not None:
            where = job.features, job.resume
            features = kept_features(classifier, listed or (), *where, on_progress)
        output = held.enter_context(_output(job, corrections, classifier, started_at, listed))
        stream = ImageStream(
            classifier,
            output,
            job.states,
            None if kept is None else Journal(kept / "journal"),
            strict=job.strict,
            workers=processors(),
            corrections=corrections,
            knows_corrections=checkpoint is not None,
            started_at=started_at,
            kept=features,
        )
        if kept is not None and job.passes == 2:
            yield output, _two_passes(job, stream, kept, listed, held, on_note)
        else:
            paths = _live_paths(job, output, on_note) if listed is None else listed
            yield output, [("images", len(listed or ()), stream.run(paths, job.is_live))]
        if job.probabilities is not None:
            output.write_probabilities(job.probabilities)
        if job.export is not None and job.out is not None:
            write_label_studio(output, job.out)


def _answered(job: PredictJob) -> set[str]:
    """The images that an earlier call has answered, which may have been moved since."""
    if not job.resume or job.out is None or job.layout is None:
        return set()
    first = appended(resume_folder(job.out) / "first.jsonl", "jsonl")
    return {line["path"] for line in appended(job.out, job.layout) + first}


def _hold(job: PredictJob, held: contextlib.ExitStack) -> Path | None:
    """Lock what is written; the folder for what a second pass or a later call needs."""
    if job.sort_into is not None:
        if not job.sort_into.exists():  # and if the job is refused, nothing stays behind
            held.callback(_remove_empty, job.sort_into)
        job.sort_into.mkdir(parents=True, exist_ok=True)
    for place in (job.out, job.save_state, job.sort_into and job.sort_into / "images"):
        if place is not None:
            held.enter_context(locked(place))
    if job.out is None and job.passes == 2:
        return Path(held.enter_context(tempfile.TemporaryDirectory()))
    return None if job.out is None else resume_folder(job.out)


def _remove_empty(folder: Path) -> None:
    with contextlib.suppress(OSError):  # it holds images
        folder.rmdir()


def _classifier(
    job: PredictJob, names: tuple[str, ...] | None, checkpoint: Path | None, on_note: Note
) -> Classifier:
    state = checkpoint or job.load_state
    if job.model is None and state is None:
        on_note("the bundled model mini knows rendered shapes only; for photographs name another "
                "with --model.")  # fmt: skip
    given = {name: getattr(job, name) for name in _FOR_CLASSIFIER}
    templates = job.templates or (PHOTO,)
    return Classifier(**given, classes=names, templates=templates, state=state, on_note=on_note)


def _output(
    job: PredictJob,
    corrections: Mapping[str, str],
    classifier: Classifier,
    started_at: int,
    listed: Sequence[Path] | None,
) -> AnswerFile:
    """The file of answers; an older one is removed only now, when everything has been checked."""
    settings = {**classifier.settings, "top": job.top, "unsure_below": job.unsure_below,
                "passes": job.passes, "by": job.by, "sort_into": str(job.sort_into),
                "started_at": started_at, "corrections": list(corrections.items()),
                "features": job.features is not None}  # fmt: skip
    columns = list(read_names(job.classes) or classifier.task.class_names)
    settings |= {"columns": columns} if job.probabilities else {}
    if job.out is not None and job.overwrite:
        job.out.unlink(missing_ok=True)
        shutil.rmtree(resume_folder(job.out), ignore_errors=True)
    sorter = None
    if job.sort_into is not None:
        sorter = Sorter(job.sort_into, job.by or "copy", classifier.task.class_names)
    table = None
    if job.layout == "table":
        names = classifier.task.class_names
        table = PrintedTable(map(str, listed or ()), names, sys.stdout.isatty())
    return AnswerFile(
        job.out,
        layout_of(job.out, job.layout),
        job.resume,
        settings,
        job.top or 0,
        job.unsure_below,
        sorter,
        table,
        lines=[] if job.truth or job.export else None,
        rows=resume_folder(job.out) / "probabilities" if job.out and job.probabilities else None,
        classes=columns,
    )


def _two_passes(
    job: PredictJob,
    stream: ImageStream,
    kept: Path,
    listed: Sequence[Path] | None,
    held: contextlib.ExitStack,
    on_note: Note,
) -> list[Part]:
    """The first pass, then the second one, which is closed to new images once it has begun."""
    output, first = stream.output, kept / "first.jsonl"
    stream.output = held.enter_context(AnswerFile(first, "jsonl", first.exists()))
    stream.journal = features = Journal(kept / "features", keep_all=True)
    paths = list(iter_lines(sys.stdin)) if listed is None else listed
    if output.before:
        if any(map(stream.output.is_new, paths)):
            on_note("images that came after the first pass are left out: --overwrite starts over.")
        paths = []

    def answer_all() -> Iterator[Any]:
        lines = read_answers(first)
        yield from second_pass(stream.classifier, lines, features, output, stream.workers)
        if job.save_state is not None:
            stream.classifier.save(job.save_state)
        features.path.unlink(missing_ok=True)

    return [(FIRST_PASS, len(paths), stream.run(paths)), ("second pass", len(paths), answer_all())]


def _live_paths(job: PredictJob, output: AnswerFile, on_note: Note) -> Iterator[Path | None]:
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
