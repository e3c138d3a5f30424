"""Stores: features encoded once, kept on disk block by block, keyed by what made them."""

from crg.store.opening import open_store

__all__ = ["open_store"]
