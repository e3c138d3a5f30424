"""What the service counts, for Prometheus."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

_METHODS = ("GET", "HEAD", "POST", "DELETE", "OPTIONS", "PUT", "PATCH")
_SIZES = (1, 2, 4, 8, 16, 32, 64, 128)
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)


class Metrics:
    """Counters of one service, in a registry of their own."""

    def __init__(self) -> None:
        self._registry = own = CollectorRegistry()
        self.requests = Counter(
            "crg_requests", "Requests by route and status.", ["method", "route", "status"],
            registry=own,
        )  # fmt: skip
        self.seconds = Histogram(
            "crg_request_seconds", "Time to the end of an answer.", ["route"],
            buckets=_SECONDS, registry=own,
        )  # fmt: skip
        self.images = Counter("crg_images", "Images answered.", registry=own)
        self.changed = Counter("crg_changed", "Answers that adaptation changed.", registry=own)
        self.corrections = Counter("crg_corrections", "Corrections learnt.", registry=own)
        self.batch_size = Histogram(
            "crg_batch_size", "Views per call of the encoder.", buckets=_SIZES, registry=own
        )
        self.commit_size = Histogram(
            "crg_commit_size", "Changes per commit.", buckets=_SIZES, registry=own
        )
        self.waiting = Gauge("crg_waiting_images", "Images that wait.", registry=own)
        self.waiting_bytes = Gauge("crg_waiting_bytes", "Bytes of requests.", registry=own)
        self.loaded = Gauge("crg_loaded_sessions", "Sessions in memory.", registry=own)
        self.watchers = Gauge("crg_watchers", "Open streams of events.", registry=own)
        self.replay_differences = Counter(
            "crg_replay_differences", "Replayed answers that differ.", registry=own
        )

        self._answered: dict[tuple[str, str, int], tuple[Counter, Histogram]] = {}

    def answered(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count a request."""
        key = (method if method in _METHODS else "other", route, status)
        if key not in self._answered:  # looking them up takes longer than counting
            labels = (key[0], route, str(status))
            self._answered[key] = self.requests.labels(*labels), self.seconds.labels(route)
        counted, took = self._answered[key]
        counted.inc()
        took.observe(seconds)

    def text(self) -> bytes:
        """All of them, as Prometheus reads them."""
        return generate_latest(self._registry)
