"""A sample of every family of attacks; ``make soak`` runs the same for as long as asked."""

from __future__ import annotations

from pathlib import Path

import pytest

from attacks import FAMILIES, Family


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the attacks put their files."""
    return tmp_path_factory.mktemp("attacks")


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_attacks_are_handled(family: Family, place: Path) -> None:
    """Each case is refused in one sentence, or gives what it would have given without it."""
    for seed in range(family.cases):
        outcome, why = family.case(seed, place)
        again = f"python tools/soak.py --only {family.name} --seed {seed} --cases 1"
        assert outcome is not None, f"{again}\n{why}"


def test_every_family_can_fail(tmp_path: Path) -> None:
    """An exception of any other kind is a finding, with its sentence."""

    def broken(*_: object) -> None:
        raise KeyError("found")

    outcome, why = Family("broken", broken, 1).case(0, tmp_path)  # type: ignore[arg-type]
    assert outcome is None and "KeyError: 'found'" in why
