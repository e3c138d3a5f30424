"""Engine: runs that do not depend on each other, here or in several processes.

``crg.engine.cluster`` runs them on a Ray cluster.
"""

from crg.engine.processes import run_all
from crg.engine.worker import (
    Failure,
    OnProgress,
    Outcome,
    RunSpec,
    forget_files,
    read_once,
    read_with_few,
    results_only,
    run_spec,
)

__all__ = [
    "Failure",
    "OnProgress",
    "Outcome",
    "RunSpec",
    "forget_files",
    "read_once",
    "read_with_few",
    "results_only",
    "run_all",
    "run_spec",
]
