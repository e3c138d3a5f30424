"""What the service counts, for Prometheus."""

from __future__ import annotations

from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

_METHODS = ("GET", "HEAD", "POST", "DELETE", "OPTIONS", "PUT", "PATCH")
_SIZES = (1, 2, 4, 8, 16, 32, 64, 128)
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)


class Counters:
    """Counters of one service, in a registry of their own."""

    def __init__(self) -> None:
        self._registry = own = CollectorRegistry()
        counter, gauge = partial(Counter, registry=own), partial(Gauge, registry=own)
        histogram = partial(Histogram, registry=own)
        self.requests = counter(
            "crg_requests", "Requests by route and status.", ["method", "route", "status"]
        )
        self.seconds = histogram(
            "crg_request_seconds", "Time to the end of an answer.", ["route"], buckets=_SECONDS
        )
        self.images = counter("crg_images", "Images answered.")
        self.changed = counter("crg_changed", "Answers that adaptation changed.")
        self.corrections = counter("crg_corrections", "Corrections learnt.")
        self.batch_size = histogram(
            "crg_batch_size", "Views per call of the encoder.", buckets=_SIZES
        )
        self.commit_size = histogram("crg_commit_size", "Changes per commit.", buckets=_SIZES)
        self.waiting = gauge("crg_waiting_images", "Images that wait.")
        self.waiting_bytes = gauge("crg_waiting_bytes", "Bytes of requests.")
        self.loaded = gauge("crg_loaded_sessions", "Sessions in memory.")
        self.watchers = gauge("crg_watchers", "Open streams of events.")
        self.replay_differences = counter("crg_replay_differences", "Replayed answers that differ.")

    def answered(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count a request."""
        known = method if method in _METHODS else "other"
        self.requests.labels(known, route, str(status)).inc()
        self.seconds.labels(route).observe(seconds)

    def text(self) -> bytes:
        """All of them, as Prometheus reads them."""
        return generate_latest(self._registry)
