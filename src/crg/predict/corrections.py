"""What people say that images show: corrections, which are learnt, and truth, which is not.

Corrections come from the page of ``crg review`` or from Label Studio, for which tasks are written.
They are learnt before the stream, in the order of the file, and a person's word is final: a
corrected image is not asked about again. Truth is compared with the answers at the end.
"""

from __future__ import annotations

import csv
import io
import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, TypedDict
from urllib.parse import quote

import msgspec
import numpy as np

from crg.atomic import content_of, replacing
from crg.classifier import Classifier
from crg.encoders.base import name_key
from crg.images.reading import shown
from crg.metrics import Numbers, paired_interval, per_class_accuracy
from crg.predict.answers import CORRECTED, AnswerFile, Line
from crg.predict.lines import unmarked
from crg.results.schema import ENOUGH_IMAGES
from crg.threads import one_blas_thread
from crg.types import InputError, listed, parsed_json, printable

FOLDERS = "folders"  # as truth: every image shows what its folder is called
_CLASSES_SHOWN, _CONFUSIONS_SHOWN = 20, 10
_LOCAL_FILES = "/data/local-files/?d="  # where Label Studio serves the files of its own machine
_TAGS = {"from_name": "label", "to_name": "image", "type": "choices"}
_CONFIGURATION = """<View>
  <Image name="image" value="$image"/>
  <Choices name="label" toName="image">
    {}
  </Choices>
</View>
"""


class _Correction(TypedDict):
    path: Annotated[str, msgspec.Meta(min_length=1)]
    label: Annotated[str, msgspec.Meta(min_length=1)]


def read_corrections(path: Path) -> dict[str, str]:
    """The label of each image by its path, from CSV, JSON lines or an export of Label Studio."""
    text = content_of(path).decode("utf-8-sig", "surrogateescape")
    try:
        if path.suffix.lower() == ".csv":
            table = csv.DictReader(io.StringIO(text, newline=""), strict=True)
            rows = [{name: unmarked(row[name] or "") for name in row if name} for row in table]
        else:
            whole = text.lstrip().startswith("[")  # an array, not a value per line
            parsed = map(parsed_json, filter(str.strip, [text] if whole else text.split("\n")))
            rows = list(_annotated(next(parsed)) if whole else parsed)
        said = msgspec.convert(rows, Annotated[list[_Correction], msgspec.Meta(min_length=1)])
    except (ValueError, csv.Error, LookupError, TypeError, AttributeError) as error:
        raise InputError(
            f"{path} holds no labels ({error}): give a file with path and label in every "
            "line, as the page of crg review writes it, or annotations of Label Studio as JSON."
        ) from None
    labels: dict[str, str] = {}
    for each in said:
        if labels.setdefault(each["path"], each["label"]) != each["label"]:
            raise InputError(
                f"{path} gives {shown(each['path'])} two labels, {labels[each['path']]!r} and "
                f"{each['label']!r}: keep one of them."
            )
    return labels


def learn(
    classifier: Classifier, corrections: Mapping[str, str], workers: int = 1
) -> dict[str, str]:
    """Encode every corrected image and learn its label; returns why some cannot be read."""
    images, errors = list(map(Path, corrections)), {}
    for name, _, features in classifier.encode_many(images, corrections, workers=workers):
        if isinstance(features, InputError):
            errors[name] = str(features)
            continue
        with one_blas_thread():
            classifier.adapter.correct(features, corrections[name], sample_id=name)
    return errors


def true_labels(given: str, paths: Iterable[str], classes: Sequence[str]) -> dict[str, str]:
    """What images are known to show: by a file, or by the names of the folders that they are in.

    A label names a class whatever its case, and an underscore is a space.
    """
    places = {path: Path(os.path.abspath(path)) for path in paths}
    if given == FOLDERS:
        said = {path: place.parent.name for path, place in places.items()}
    else:  # its paths are those that crg predict got, or relative to the file
        labels, folders = read_corrections(Path(given)).items(), (Path(given).parent, Path())
        by_place = {Path(os.path.abspath(folder / path)): label
                    for folder in folders for path, label in labels}  # fmt: skip
        said = {path: by_place[place] for path, place in places.items() if place in by_place}
    names = {name_key(name): name for name in classes} | {name: name for name in classes}
    found = {path: names.get(label, names.get(name_key(label), label))
             for path, label in said.items()}  # fmt: skip
    if names.keys().isdisjoint(found.values()):
        raise InputError("--truth gives none of the images a label that is a class, such as "
                         f"{listed(classes, 2)}: check labels and paths.")  # fmt: skip
    return found


def compared(lines: Iterable[Line], truth: str, classes: Sequence[str]) -> Iterator[str]:
    """Lines of text: whether adaptation helps, the accuracy of classes, frequent confusions."""
    answers = {line["path"]: line for line in lines if "step" in line}
    names = frozenset(classes)
    labels = true_labels(truth, answers, classes) if answers else {}
    why = {path: "their labels are no classes" if label not in names
           else "they were corrected, and so learnt" if answers[path].get(CORRECTED)
           else "" if answers[path]["label"] else "their answers are withheld"
           for path, label in labels.items()}  # fmt: skip
    known = [(label, answers[path]["label"], answers[path]["zero_shot_label"])
             for path, label in labels.items() if not why[path]]  # fmt: skip
    if known:
        found, numbers = np.unique(known, return_inverse=True)
        true, ours, theirs = numbers.reshape(-1, 3).T
        yield _verdict(ours == true, theirs == true)
        yield from _class_table([printable(name) for name in found], true, ours, theirs)
    wrong = Counter(each[:2] for each in known if each[0] != each[1])
    for (label, answer), n in wrong.most_common(_CONFUSIONS_SHOWN):
        yield f"  {n} of {printable(label)} answered as {printable(answer)}"
    for reason, n in Counter(filter(None, why.values())).items():
        yield f"{n} of {len(labels)} labelled images left out: {reason}."


def _verdict(ours: Numbers, theirs: Numbers) -> str:
    """Whether adaptation helps, in a sentence, from which images (N,) were answered correctly."""
    gain = paired_interval(ours[None, :], theirs[None, :])
    verdict = "Adaptation makes no significant difference"
    if len(ours) < ENOUGH_IMAGES:
        verdict = f"{ENOUGH_IMAGES} labels are needed to see whether adaptation helps"
    elif not ours.any():  # wrong answers were labelled, and no others
        verdict = "Label right answers, too, to see whether adaptation helps"
    elif not gain.low <= 0 <= gain.high:
        verdict = "Adaptation helps" if gain.low > 0 else "Adaptation hurts"
    mean, low, high = (f"{100 * each:+.1f}" for each in (gain.mean, gain.low, gain.high))
    return (
        f"{verdict}: {ours.mean():.1%} of {len(ours)} images correct, zero-shot "
        f"{theirs.mean():.1%}, gain {mean} points (95% interval {low} to {high})."
    )


def _class_table(
    names: Sequence[str], true: Numbers, ours: Numbers, theirs: Numbers
) -> Iterator[str]:
    """The classes that have images, the lowest accuracy first; a long list is cut."""
    counts = np.bincount(true, minlength=len(names))
    mine, zero_shot = (per_class_accuracy(each, true, len(names)) for each in (ours, theirs))
    found = [k for k in np.argsort(mine, kind="stable") if counts[k]]
    width = max(len(names[k]) for k in found)
    yield f"  {'class':{width}}  images  correct  zero-shot"
    for k in found[:_CLASSES_SHOWN]:
        yield f"  {names[k]:{width}} {counts[k]:7} {mine[k]:8.1%} {zero_shot[k]:10.1%}"
    if len(found) > _CLASSES_SHOWN:
        yield f"  ... and {len(found) - _CLASSES_SHOWN} more"


def label_studio_files(out: Path) -> list[Path]:
    """The tasks and the labelling configuration that belong to a file of answers."""
    return [out.with_name(f"{out.name}.label-studio.{suffix}") for suffix in ("json", "xml")]


def write_label_studio(answers: AnswerFile, out: Path) -> None:
    """Write the answers as tasks, and the labelling configuration of their project."""
    from xml.sax.saxutils import quoteattr  # which imports urllib.request

    version = f"{answers.settings['method']} on {answers.settings['model']}"
    tasks = json.dumps(list(_tasks(answers.lines or (), version)), indent=1)
    choices = (f"<Choice value={quoteattr(name)}/>" for name in answers.classes)
    configuration = _CONFIGURATION.format("\n    ".join(choices))
    for path, text in zip(label_studio_files(out), (tasks, configuration), strict=True):
        with replacing(path) as partial:
            partial.write_text(text, "utf-8")


def _tasks(lines: Iterable[Line], version: str) -> Iterator[dict[str, Any]]:
    """A task per image: with a prediction, the annotation of a person or, without a label, neither.

    The path is kept beside the address of the image, so that corrections name the image.
    """
    for line in {each["path"]: each for each in lines if "error" not in each}.values():
        address = _LOCAL_FILES + quote(os.fsencode(line["path"].lstrip("/")))
        task: dict[str, Any] = {"data": {"image": address, "path": line["path"]}}
        said = {"result": [{**_TAGS, "value": {"choices": [line["label"]]}}]}
        if line.get(CORRECTED):
            task["annotations"] = [said]
        elif line["label"]:
            score = line["probability"]
            task["predictions"] = [{"model_version": version, "score": score, **said}]
        yield task


def _annotated(tasks: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Path and label of every annotation that Label Studio exported as JSON or JSON-MIN."""
    for task in tasks:
        if "data" not in task:  # JSON-MIN has the fields of the task beside the label
            yield dict(task)
        for annotation in task.get("annotations", ()):
            for result in () if annotation.get("was_cancelled") else annotation["result"]:
                if choices := result["value"].get("choices"):  # else a remark, a rating
                    [label] = choices if isinstance(choices, list) else [choices]
                    yield {"path": task["data"]["path"], "label": label}
