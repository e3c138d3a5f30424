"""The laws every method obeys. Check your own method with ``check_method("its_name")``.

Each law is a small function that states itself in its docstring, builds its own seeded
samples and raises ``LawBroken`` with a sentence. Nothing here needs a test framework.

>>> check_method("zero_shot", laws=[same_stream_gives_same_logits])
[]
"""

from crg.checks.law import Law, LawBroken, LawSkipped, Make, Verdict
from crg.checks.repeatable import same_stream_gives_same_logits
from crg.checks.running import LAWS, check_law, check_method, iter_laws

__all__ = [
    "LAWS",
    "Law",
    "LawBroken",
    "LawSkipped",
    "Make",
    "Verdict",
    "check_law",
    "check_method",
    "iter_laws",
    "same_stream_gives_same_logits",
]
