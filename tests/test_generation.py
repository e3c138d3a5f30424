"""Folders of variations, and the job that makes them once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from crg.generation.variations import (
    GenerationProgress,
    GenerationSummary,
    Generator,
    Variations,
    generate,
    seed_of,
)
from encoding_fakes import dot_files, dots
from made_variations import make_variations, variation
from sentences import refused_in_one_sentence


class Dimmer:
    """A generator that needs no model and counts what it makes."""

    def __init__(self, stop_after: int = 10**6) -> None:
        self.made, self.left = 0, stop_after

    def generate(
        self, image: Image.Image, image_id: str, numbers: Sequence[int], seed: int
    ) -> Iterator[Image.Image]:
        """Variations in a light that depends on id, number and seed."""
        for number in numbers:
            self.left -= 1
            if self.left < 0:
                raise KeyboardInterrupt
            self.made += 1
            yield variation(image, seed_of(seed, image_id, number) % 7)

    def describe(self) -> Mapping[str, Any]:
        """Nothing decides more."""
        return {"dimmer": 1}


def files(folder: Path) -> dict[str, bytes]:
    """Every file below a folder."""
    found = [path for path in folder.rglob("*") if path.is_file()]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in found}


def make(
    out: Path, generator: Generator | None = None, count: int = 3, **options: Any
) -> GenerationSummary:
    """Variations of five dots."""
    return generate(dots(5), generator or Dimmer(), count, out, **options)


def test_each_variation_is_one_file(tmp_path: Path) -> None:
    """There is a folder for each image, and in it what the generator made of it, in order."""
    done = make(tmp_path / "v")
    assert (done.n_images, done.n_made, done.n_reused, done.skipped) == (5, 15, 0, [])
    [first, *_] = Dimmer().generate(dots(5).sources[4].draw(), "dot 4", [2], 0)  # type: ignore[union-attr]
    assert Image.open(Variations(tmp_path / "v", 3).of("dot 4")[2]).tobytes() == first.tobytes()


@pytest.mark.parametrize("after", [0, 1, 7, 15])
def test_a_stopped_job_continues_where_it_was(tmp_path: Path, after: int) -> None:
    """What is there is not made again, and the end is as if nothing had happened."""
    if after < 15:
        with pytest.raises(KeyboardInterrupt):
            make(tmp_path / "v", Dimmer(after))
    else:
        make(tmp_path / "v")
    rest = Dimmer()
    done = make(tmp_path / "v", rest)
    assert (rest.made, done.n_made, done.n_reused) == (15 - after, 15 - after, after)
    make(tmp_path / "whole")
    assert files(tmp_path / "v") == files(tmp_path / "whole")


def test_more_variations_can_be_added(tmp_path: Path) -> None:
    """A larger count keeps the first ones and makes the others."""
    make(tmp_path / "v", count=2)
    rest = Dimmer()
    make(tmp_path / "v", rest, count=4)
    make(tmp_path / "whole", count=4)
    assert rest.made == 10 and files(tmp_path / "v") == files(tmp_path / "whole")


def test_progress_begins_with_what_is_there(tmp_path: Path) -> None:
    """Progress counts variations and tells apart what was there before."""
    make(tmp_path / "v", count=2)
    seen: list[GenerationProgress] = []
    make(tmp_path / "v", on_progress=seen.append)
    assert seen == [GenerationProgress(10, done, 15) for done in range(10, 16)]


def test_a_folder_of_something_else_is_refused(tmp_path: Path) -> None:
    """Another seed or a strange folder is named, and neither is touched."""
    make(tmp_path / "v")
    before = files(tmp_path / "v")
    with refused_in_one_sentence("seed was 0 and is 4 now", "--out"):
        make(tmp_path / "v", seed=4)
    assert files(tmp_path / "v") == before
    (tmp_path / "strange").mkdir()
    (tmp_path / "strange" / "letter.txt").write_text("dear")
    with refused_in_one_sentence("holds something else"):
        make(tmp_path / "strange")
    (tmp_path / "v" / "variations.json").write_text("[")
    with refused_in_one_sentence("variations.json is damaged"):
        make(tmp_path / "v")
    with refused_in_one_sentence("number of variations is 0"):
        make(tmp_path / "w", count=0)


def test_unreadable_images_end_the_job_or_are_listed(tmp_path: Path) -> None:
    """An image that is none is refused by name, or left out and told."""
    images = dot_files(tmp_path / "files", 4, [2])
    with refused_in_one_sentence("dot 02.png", "--skip-unreadable"):
        generate(images, Dimmer(), 2, tmp_path / "v")
    done = generate(images, Dimmer(), 2, tmp_path / "v", skip_unreadable=True)
    assert [name for name, _ in done.skipped] == ["dot 02.png"]
    assert (done.n_made, done.n_reused) == (2, 4)


def test_variations_are_found_with_and_without_the_ending(tmp_path: Path) -> None:
    """The folder may be named like the file or without its ending; others are not looked at."""
    for place, names in {"cat/1.jpg": "ba", "cat/2": "dc", "cat/1": "z"}.items():
        (tmp_path / place).mkdir(parents=True)
        for name in names:
            Image.new("RGB", (4, 4)).save(tmp_path / place / f"{name}.png")
    (tmp_path / "cat/1.jpg/.hidden.png").write_bytes(b"")
    (tmp_path / "cat/1.jpg/about.txt").write_text("none")
    found = Variations(tmp_path, 2)
    assert [path.name for path in found.of("cat/1.jpg")] == ["a.png", "b.png"]
    assert [path.name for path in found.of("cat/2.png")] == ["c.png", "d.png"]
    with refused_in_one_sentence("cat/1.gif has 1 variations", "crg generate"):
        found.of("cat/1.gif")
    for outside in ("../secret.png", "/etc/hostname", ""):
        with refused_in_one_sentence("leads out of the folder"):
            found.of(outside)
    with refused_in_one_sentence("is no folder"):
        Variations(tmp_path / "nowhere", 2)


def test_the_fingerprint_follows_the_files(tmp_path: Path) -> None:
    """It changes with the files of these images and their number, and with nothing else."""
    images = dots(3)
    folder = make_variations(images, tmp_path / "v", 3)
    before = Variations(folder, 2).fingerprint(images.ids)
    (folder / "dot 0" / "0002.png").write_bytes(b"not among the first two")
    assert Variations(folder, 2).fingerprint(images.ids) == before
    assert Variations(folder, 3).fingerprint(images.ids) != before
    (folder / "dot 0" / "0001.png").write_bytes(b"another")
    assert Variations(folder, 2).fingerprint(images.ids) != before
