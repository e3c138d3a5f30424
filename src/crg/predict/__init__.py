"""Predictions on files: the stream of files in, the answers out."""
