"""Encoding: images become features one time, kept in a store that every run reads."""

from crg.encoding.job import EncodingProgress, EncodingSummary, encode, summary_of
from crg.encoding.plan import Wording

__all__ = ["EncodingProgress", "EncodingSummary", "Wording", "encode", "summary_of"]
