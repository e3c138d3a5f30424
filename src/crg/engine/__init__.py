"""Engine: independent runs, in this process, in several, or on Ray (``crg.engine.ray``)."""

from crg.engine.processes import run_all
from crg.engine.worker import (
    OnProgress,
    Outcome,
    forget_files,
    read_once,
    read_with_few,
    results_only,
    run_spec,
)

__all__ = [
    "OnProgress",
    "Outcome",
    "forget_files",
    "read_once",
    "read_with_few",
    "results_only",
    "run_all",
    "run_spec",
]
