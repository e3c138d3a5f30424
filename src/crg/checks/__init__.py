"""The checks that every method passes. Check your own method with ``check_method("its_name")``.

Each check is a small function that states its claim in its docstring, builds its own seeded
samples and raises ``CheckFailed`` with a sentence. Nothing here needs a test framework.

>>> check_method("zero_shot", checks=[same_stream_gives_same_logits])
[]
"""

from crg.checks.answers import same_stream_gives_same_logits
from crg.checks.base import Check, CheckFailed, CheckSkipped, Make, Verdict
from crg.checks.runner import CHECKS, check_method, iter_checks, run_check

__all__ = [
    "CHECKS",
    "Check",
    "CheckFailed",
    "CheckSkipped",
    "Make",
    "Verdict",
    "check_method",
    "iter_checks",
    "run_check",
    "same_stream_gives_same_logits",
]
