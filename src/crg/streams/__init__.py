"""Streams: orders, scenarios, label noise, and a made stream for trials."""
