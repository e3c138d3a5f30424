"""Encoding: images become features one time, kept in a store that every run reads."""

from crg.encoding.job import Progress, Summary, encode
from crg.encoding.plan import Wording

__all__ = ["Progress", "Summary", "Wording", "encode"]
