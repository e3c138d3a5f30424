"""Engine: runs that do not depend on each other, here, in several processes or on a cluster."""

from crg.engine.cluster import run_all_on_ray
from crg.engine.processes import run_all
from crg.engine.spec import Failure, OnProgress, Outcome, RunSpec, results_only
from crg.engine.worker import forget_files, read_once, read_with_few, run_spec

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
    "run_all_on_ray",
    "run_spec",
]
