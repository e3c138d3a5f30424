"""Encoding: images become features one time, kept in a store that every run reads."""

from crg.encoding.job import EncodingProgress, EncodingSummary, Wording, encode

__all__ = ["EncodingProgress", "EncodingSummary", "Wording", "encode"]
