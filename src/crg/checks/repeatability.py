"""Checks of repeatability: what comes out depends on what went in, and on nothing else."""

from __future__ import annotations

import random

import numpy as np

from crg.checks.base import Check, Logits, Make, require, require_same_bits, run
from crg.checks.fixtures import VIEW_COUNTS, make_stream, make_task


def same_stream_gives_same_logits(make: Make) -> None:
    """The same stream twice gives the same logits to the last bit."""
    task = make_task()
    for views in VIEW_COUNTS:
        stream = make_stream(task, 100, views)
        first, second = run(make(task), stream), run(make(task), stream)
        require_same_bits(first, second, "The same stream gave other logits the second time")


def adapters_are_independent(make: Make) -> None:
    """Two adapters that take turns answer as each would alone."""
    task = make_task()
    streams = [make_stream(task, 60, 8, seed=seed) for seed in (1, 2)]
    alone = [run(make(task), stream) for stream in streams]
    one, other = make(task), make(task)
    both = [(one.step(a).logits, other.step(b).logits) for a, b in zip(*streams, strict=True)]
    for place in (0, 1):
        together = [np.array(pair[place]) for pair in both]
        require_same_bits(alone[place], together, "Another adapter's samples changed the logits")


def global_random_state_is_left_alone(make: Make) -> None:
    """The global generators of random and NumPy are neither read nor moved."""
    states = random.getstate(), np.random.get_state()
    try:
        left, right = _run_after_seeding(make, 1), _run_after_seeding(make, 2)
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])
    require_same_bits(left, right, "The logits depend on the global random generators")


def reset_returns_to_the_start(make: Make) -> None:
    """After reset an adapter answers as a new one, to the last bit."""
    task = make_task()
    for views in VIEW_COUNTS:
        used = make(task)
        run(used, make_stream(task, 80, views, seed=3))
        used.reset()
        require(used.n_steps == 0, f"After reset n_steps is {used.n_steps}, not 0")
        stream = make_stream(task, 60, views)
        require_same_bits(run(make(task), stream), run(used, stream), "Reset left something behind")


def _run_after_seeding(make: Make, seed: int) -> Logits:
    task = make_task()
    random.seed(seed)
    np.random.seed(seed)
    before = _state_of_generators()
    logits = run(make(task), make_stream(task, 40, 8))
    unmoved = _state_of_generators() == before
    require(unmoved, "The method moved a global random generator: give it one of its own")
    return logits


def _state_of_generators() -> tuple[object, str]:
    # As text, because the parts of NumPy's state are arrays; 625 numbers are shown in full.
    with np.printoptions(threshold=10_000):
        return random.getstate(), repr(np.random.get_state())


CHECKS: list[Check] = [
    same_stream_gives_same_logits,
    adapters_are_independent,
    global_random_state_is_left_alone,
    reset_returns_to_the_start,
]
