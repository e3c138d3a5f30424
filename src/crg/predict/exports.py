"""Answers for other programs: tasks of Label Studio, and the matrix that cleanlab reads."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote
from xml.sax.saxutils import quoteattr

import numpy as np

from crg.answer import Answer
from crg.atomic import replacing
from crg.predict.answers import CORRECTED, AnswerFile, Line, no_room
from crg.types import InputError

_LOCAL_FILES = "/data/local-files/?d="  # where Label Studio serves the files of its own machine
_TAGS = {"from_name": "label", "to_name": "image", "type": "choices"}
_CONFIGURATION = """<View>
  <Image name="image" value="$image"/>
  <Choices name="label" toName="image">
    {}
  </Choices>
</View>
"""


@dataclass
class ExportedAnswers(AnswerFile):
    """Answers from which files for other programs are made when all images are answered."""

    lines: list[Line] | None = None  # gets every line, if it is a list
    rows: Path | None = None  # file that gets the probabilities of every answer, before its line
    columns: Sequence[str] = ()  # the classes in the order of the probabilities

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.rows is not None:
            size = 4 * len(self.columns) * self.counts["answered"]
            with self.rows.open("ab") as file:
                if file.tell() < size:
                    raise InputError(f"{self.rows} lacks probabilities: use --overwrite.")
                file.truncate(size)

    def answer(self, path: str, answer: Answer) -> None:
        """Write the line of an image that was answered, after its probabilities."""
        self._add_row(dict(answer.top(len(self.columns))))
        super().answer(path, answer)

    def correct(self, path: str, label: str, step: int) -> None:
        """Write what a person said of an image, unless it was written before."""
        if self.is_new(path):
            self._add_row({label: 1.0})
        super().correct(path, label, step)

    def _add_row(self, probs: Mapping[str, float]) -> None:
        if self.rows is not None:
            try:
                with self.rows.open("ab") as file:
                    np.array([probs.get(name, 0) for name in self.columns], "<f4").tofile(file)
            except OSError as error:
                raise no_room(self.rows, error) from None

    def _register(self, line: Line) -> None:
        super()._register(line)
        if self.lines is not None:
            self.lines.append(line)

    def write_probabilities(self, target: Path) -> None:
        """Write a NumPy file (N, K), a row per answer, at once or not at all."""
        matrix = np.fromfile(self.rows or "", "<f4").reshape(-1, len(self.columns))
        with replacing(target) as partial, partial.open("wb") as file:
            np.save(file, matrix)

    def write_label_studio(self, out: Path) -> None:
        """Write the answers as tasks, and the labelling configuration of their project."""
        version = f"{self.settings['method']} on {self.settings['model']}"
        tasks = json.dumps(list(label_studio_tasks(self.lines or (), version)), indent=1)
        choices = (f"<Choice value={quoteattr(name)}/>" for name in self.columns)
        configuration = _CONFIGURATION.format("\n    ".join(choices))
        for path, text in zip(label_studio_files(out), (tasks, configuration), strict=True):
            with replacing(path) as partial:
                partial.write_text(text, "utf-8")


def label_studio_files(out: Path) -> list[Path]:
    """The tasks and the labelling configuration that belong to a file of answers."""
    return [out.with_name(f"{out.name}.label-studio.{suffix}") for suffix in ("json", "xml")]


def label_studio_tasks(lines: Iterable[Line], version: str) -> Iterator[dict[str, Any]]:
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


def annotated(tasks: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Path and label of every annotation that Label Studio exported as JSON or JSON-MIN."""
    for task in tasks:
        if "data" not in task:  # JSON-MIN has the fields of the task beside the label
            yield dict(task)
        for annotation in task.get("annotations", ()):
            for result in () if annotation.get("was_cancelled") else annotation["result"]:
                yield {"path": task["data"]["path"], "label": result["value"]["choices"][0]}
