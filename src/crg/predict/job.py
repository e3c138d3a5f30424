"""One call of ``crg predict``: what was asked for, what is refused, and the work to do."""

from __future__ import annotations

import contextlib
import math
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from os.path import realpath  # which a loop of links does not stop
from pathlib import Path
from typing import Any, Literal, TypeAlias

from crg import state_file
from crg.answer import COLUMNS
from crg.atomic import check_place, locked, locked_folder
from crg.classifier import Classifier
from crg.encoding import EncodingProgress
from crg.extras import library
from crg.images.reading import shown
from crg.methods.base import Method
from crg.methods.options import option
from crg.methods.registry import DEFAULT, get_method
from crg.parts.decisions import AUTO, NoneOfThese, fraction
from crg.predict.answers import (
    SUFFIXES,
    TABLES,
    AnswerFile,
    appended,
    kept_settings,
    lines_file,
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
from crg.predict.files import STANDARD_INPUT, iter_arrivals, iter_lines, list_images, read_names
from crg.predict.journal import Journal
from crg.predict.lines import PrintedTable
from crg.predict.sorting import By, Sorter, check_apart
from crg.predict.stream import ImageStream, kept_features, second_pass
from crg.prompts import PHOTO
from crg.threads import processors
from crg.types import InputError

FIRST_PASS = "first pass"

Note: TypeAlias = Callable[[str], None]
Part: TypeAlias = tuple[str, int, Iterator[Any]]  # its name, how many images at most, the work
# The fields of a job that are arguments of the classifier under the same name.
_FOR_CLASSIFIER = ("model", "method", "options", "templates", "descriptions", "views",
                   "device", "text_features", "none_of_these", "sets")  # fmt: skip


@dataclass(kw_only=True)
class PredictJob:
    """What to predict, how, and where answers go: fields with help are options of the command."""

    # fmt: off
    images: tuple[str, ...]
    classes: str | None = option(None, "Class names, separated by commas, or a file with one per "
                                 "line.", metavar="LIST|FILE")
    method: str | None = option(None, f"Name of the method.  [default: {DEFAULT}]")
    options: Mapping[str, str] = field(default_factory=dict)
    model: str | None = option(None, "As `crg encoders` lists them.  [default: mini]",
                               metavar="NAME")
    templates: tuple[str, ...] = option((), "Prompt with {} for the class; may be repeated.  "
                                        f"[default: {PHOTO}]", flag="--template", metavar="TEXT")
    descriptions: Path | None = option(None, "JSON file of sentences per class, in CuPL's form: "
                                       "prompts instead of the default template, or beside each "
                                       "--template.")
    views: int = option(1, "Views per image, the original included; the papers use 64.", at_least=1)
    text_features: str | None = None
    device: str | None = None
    features: Path | None = option(None, "Keep the features of the images in this folder, a store "
                                   "of crg encode, so that another method, list of classes or "
                                   "threshold need not encode them.", metavar="DIR")
    out: Path | None = option(None, "Write to this file: .jsonl as images are answered, .csv or "
                              ".parquet at the end.  [default: a table on a terminal, JSON Lines "
                              "in a pipe]")
    top: int | None = option(None, "Write the N most probable classes, too.", at_least=1,
                             metavar="N")
    unsure_below: float = option(0.0, "Leave the label empty where its probability is below P.",
                                 at_least=0, at_most=1, metavar="P")
    none_of_these: NoneOfThese = option(None, "Images of no class get no label and are not "
                                        "learnt: those whose `outside` is above a threshold that "
                                        "the stream gives (auto), or above NUMBER.",
                                        alone=AUTO, metavar="[auto|NUMBER]",
                                        read=partial(fraction, word=AUTO))
    sets: float | None = option(None, "Add a set of classes that holds the true one this often, "
                                "such as 0.9; needs 20 --corrections.", metavar="LEVEL",
                                read=fraction)
    sort_into: Path | None = option(None, "Sort images into a folder per class below this one.",
                                    metavar="DIR")
    by: By = option("copy", "How images get into the folders of --sort-into.")
    passes: int | None = option(None, "2: learn from all images first, then answer all of them.  "
                                "[default: 2 where the method gains by it, as anchored does; 1 for "
                                "other methods, a list on standard input, --watch and "
                                "--load-state]", at_least=1, at_most=2)
    save_state: Path | None = option(None, "Keep what is learnt in this file.")
    load_state: Path | None = option(None, "Continue with what an earlier stream learnt.")
    resume: bool = option(False, "Continue --out where an earlier run stopped.")
    overwrite: bool = option(False, "Replace --out and --save-state if they exist.")
    corrections: Path | None = option(None, "Learn first what a person says some images show: CSV "
                                      "or JSON lines with path and label, as the page of crg "
                                      "review writes them.")
    truth: str | None = option(None, "Compare with known labels, which are not learnt: a file with "
                               "path and label, or the names of the folders that images are in.",
                               metavar="FILE|folders")
    export: Literal["label-studio"] | None = option(None, "Write the answers as tasks of Label "
                                                    "Studio, too, beside --out.")
    probabilities: Path | None = option(None, "Write the probabilities of all classes, too, a row "
                                        "per answer.", metavar="FILE.npy")
    watch: float | None = option(None, "Continue as files arrive, until Ctrl-C or for SECONDS "
                                 "without a file.", at_least=0, alone=math.inf,
                                 metavar="[SECONDS]")
    # fmt: on

    def __post_init__(self) -> None:
        """Choose the number of passes, and refuse what contradicts itself or overwrites files."""
        self.passes = self.passes or self._default_passes()
        self._check_options()
        self._check_outputs()

    @property
    def is_live(self) -> bool:
        """Whether images are named one by one, so that their number is unknown."""
        return self.watch is not None or STANDARD_INPUT in self.images

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
            (is_listed and (len(self.images) > 1 or self.watch is not None),
             "A list on standard input stands alone: leave out the rest and --watch."),
            (is_listed and sys.stdin is None,
             "Standard input is closed: send a list of images to it, or name them."),
            (self.features is not None and self.is_live,
             "--features keeps a list of images that is complete: leave it out, or --watch and "
             "standard input."),
            (self.watch is not None and self.passes == 2,
             "A watch has no end, after which a second pass could begin: leave out --watch or "
             "--passes 2."),
            (self.passes == 2 and self.load_state is not None,
             "Two passes learn from the start: leave out --load-state or --passes."),
            (self.text_features and (self.templates or self.descriptions),
             "--text-features stands in for prompts: leave it out, or --template and "
             "--descriptions."),
            (self.out is None and (self.resume or self.export or self.probabilities),
             "--resume, --export and --probabilities need a file of answers: name it with --out."),
            (self.out is not None and self.out.suffix.lower() not in SUFFIXES,
             f"The suffix of --out {self.out} names no format: end it with {', '.join(SUFFIXES)}."),
            (self.probabilities and self.probabilities.suffix != ".npy",
             f"--probabilities {self.probabilities} is no NumPy file: end its name with .npy."),
            (self.resume and self.overwrite,
             "--resume keeps what --overwrite replaces: use one of them."),
        ):  # fmt: skip
            if is_wrong:
                raise InputError(sentence)

    def _check_outputs(self) -> None:
        """Refuse outputs that would overwrite something else or could not be written."""
        if self.sort_into is not None:
            check_apart(self.sort_into, self.images)
        taken = set(map(realpath, self.images))
        for name, path in (("--out", self.out), ("--save-state", self.save_state)):
            if path is not None and realpath(path) in taken:
                raise InputError(f"{name} {path} has another use here: choose another name.")
            taken |= set() if path is None else {realpath(path)}
        if self.out is not None:
            if self.out.suffix.lower() == ".parquet":
                library("pyarrow.parquet", "parquet")
            if not self.resume:
                there = self.out if self.out.exists() else lines_file(self.out)
                self._check_replaced(there, "a file of answers", _is_ours(self.out))
        if self.save_state is not None:
            check_place(self.save_state)
            if self.load_state is None or realpath(self.load_state) != realpath(self.save_state):
                is_state = self.save_state.exists() and state_file.is_state(self.save_state)
                self._check_replaced(self.save_state, "a saved state", is_state)
        tasks = label_studio_files(self.out) if self.export and self.out else ()
        for path in (*tasks, *filter(None, [self.probabilities])):
            check_place(path)
            self._check_replaced(path)

    def _check_replaced(self, path: Path, what: str = "", is_ours: bool = True) -> None:
        """Refuse to lose a file: ours are replaced if that is asked for, others never."""
        if path.exists() and not (self.resume or self.overwrite):
            raise InputError(f"{path} exists already: continue with it by --resume, replace it by "
                             "--overwrite or choose another name.")  # fmt: skip
        if path.exists() and not is_ours:
            raise InputError(f"{path} exists and is not {what}: choose another name.")


def _is_ours(out: Path) -> bool:
    """Whether a file is one of answers, or empty, so that there is nothing to lose."""
    content = out.read_bytes() if out.exists() else b""
    if not content or content.startswith(",".join(COLUMNS[:2]).encode()):
        return True
    with contextlib.suppress(InputError):
        return bool(read_answers(out)) or out.suffix.lower() in TABLES
    return False


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
        folder = _hold(job, held)
        state = folder / "state" if job.resume and (folder / "state").exists() else None
        classifier = _classifier(job, names, state or job.load_state, on_note)
        for label in corrections.values():
            classifier.task.index_of(label)  # refuses one that is no class
        if job.truth is not None and listed is not None:
            true_labels(job.truth, map(str, listed), classifier.task.class_names)
        before = kept_settings(job.out).get("started_at") if job.out and state else None
        started_at = before if type(before) is int else classifier.adapter.n_steps
        features = None
        if job.features is not None:
            where = job.features, job.resume
            features = kept_features(classifier, listed or (), *where, on_progress)
        output = held.enter_context(
            _output(job, corrections, classifier, started_at, listed, folder)
        )
        stream = ImageStream(
            classifier,
            output,
            folder,
            job.save_state,
            workers=processors(),
            corrections=corrections,
            learnt=state is not None,
            started_at=started_at,
            kept=features,
        )
        if job.passes == 2:
            yield output, _two_passes(stream, listed, held, on_note)
        else:
            paths = _live_paths(job, output, on_note) if listed is None else listed
            yield output, [("images", len(listed or ()), stream.run(paths, job.is_live))]
        if job.probabilities is not None:
            output.write_probabilities(job.probabilities)
        if job.export is not None and job.out is not None:
            write_label_studio(output, job.out)


def _answered(job: PredictJob) -> set[str]:
    """The images that an earlier call has answered, which may have been moved since."""
    if not job.resume or job.out is None:
        return set()
    first = appended(resume_folder(job.out) / "first.jsonl")
    return {line["path"] for line in appended(job.out) + first}


def _hold(job: PredictJob, held: contextlib.ExitStack) -> Path:
    """Lock what is written; the folder for what a second pass or a later call needs."""
    for place in filter(None, (job.out, job.save_state)):
        held.enter_context(locked(place))
    if job.sort_into is not None:
        held.enter_context(locked_folder(job.sort_into))
    if job.out is None:
        return Path(held.enter_context(tempfile.TemporaryDirectory()))
    return resume_folder(job.out)


def _classifier(
    job: PredictJob, names: tuple[str, ...] | None, state: Path | None, on_note: Note
) -> Classifier:
    if job.model is None and state is None:
        on_note("the bundled model mini knows rendered shapes only; for photographs name another "
                "with --model.")  # fmt: skip
    given = {name: getattr(job, name) for name in _FOR_CLASSIFIER}
    return Classifier(**given, classes=names, state=state, on_note=on_note)


def _output(
    job: PredictJob,
    corrections: Mapping[str, str],
    classifier: Classifier,
    started_at: int,
    listed: Sequence[Path] | None,
    folder: Path,
) -> AnswerFile:
    """The file of answers; an older one is removed only now, when everything has been checked."""
    settings = {**classifier.settings, "top": job.top, "unsure_below": job.unsure_below,
                "passes": job.passes, "by": job.by, "sort_into": str(job.sort_into),
                "started_at": started_at, "corrections": list(corrections.items()),
                "features": job.features is not None}  # fmt: skip
    names = classifier.task.class_names
    columns = list(read_names(job.classes) or names)
    settings |= {"columns": columns} if job.probabilities else {}
    if job.out is not None and job.overwrite:
        job.out.unlink(missing_ok=True)
        shutil.rmtree(folder, ignore_errors=True)
    is_seen = job.out is None and sys.stdout.isatty()
    return AnswerFile(
        job.out,
        job.resume,
        settings,
        job.top or 0,
        job.unsure_below,
        sorter=Sorter(job.sort_into, job.by, names) if job.sort_into else None,
        table=PrintedTable(map(str, listed or ()), names) if is_seen else None,
        lines=[] if job.truth or job.export else None,
        rows=Journal(folder / "probabilities") if job.probabilities else None,
        classes=columns,
    )


def _two_passes(
    stream: ImageStream, listed: Sequence[Path] | None, held: contextlib.ExitStack, on_note: Note
) -> list[Part]:
    """The first pass, then the second one, which is closed to new images once it has begun."""
    output, first = stream.output, stream.folder / "first.jsonl"
    stream.output = held.enter_context(AnswerFile(first, first.exists()))
    stream.journal = features = Journal(stream.folder / "features")
    paths = list(iter_lines(sys.stdin)) if listed is None else listed
    if output.before:
        if any(map(stream.output.is_new, paths)):
            on_note("images that came after the first pass are left out: --overwrite starts over.")
        paths = []

    def answer_all() -> Iterator[Any]:
        lines = read_answers(first)
        yield from second_pass(stream.classifier, lines, features, output, stream.workers)
        if stream.save_state is not None:
            stream.classifier.save(stream.save_state)
        features.path.unlink(missing_ok=True)

    return [(FIRST_PASS, len(paths), stream.run(paths)), ("second pass", len(paths), answer_all())]


def _live_paths(job: PredictJob, output: AnswerFile, on_note: Note) -> Iterator[Path | None]:
    if job.watch is None:
        yield from iter_lines(sys.stdin)
        return
    list_images(job.images)  # what is not there at the start is refused
    for path in iter_arrivals(lambda: list_images(job.images), idle=job.watch):
        if path is None:
            on_note(f"watching {', '.join(job.images)}, {output.counts['answered']} answered.")
        yield path
