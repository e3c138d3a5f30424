"""Scripts that use a real Ray of this machine, each in another process."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any


def printed_by(script: str, folder: Path) -> dict[str, Any]:
    """The JSON that a script beside this one prints on its last line."""
    command = [sys.executable, str(Path(__file__).with_name(script)), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    answers: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answers
