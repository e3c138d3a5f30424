"""Small tasks with what coop needs: labelled images and a text encoder."""

from __future__ import annotations

from typing import Any

import numpy as np

import crg
from crg.checks.base import furnished, make_task
from crg.methods.coop import CoOp
from crg.methods.options import build_config
from crg.resources import FEW


def check_task(**options: Any) -> crg.Task:
    """A small task of the checks, with what coop needs."""
    return furnished(make_task(**options), CoOp.needs)


def without_few(task: crg.Task) -> crg.Task:
    """The same without labelled images."""
    return task.with_resources({FEW: None})


def made(task: crg.Task, **options: Any) -> crg.Adapter:
    """An adapter whose needs are looked at by the method alone."""
    return crg.Adapter(CoOp(task, build_config("coop", CoOp.Config, options)))


def logits_of(adapter: crg.Adapter, stream: Any) -> Any:
    """All logits (N, K)."""
    return np.stack([prediction.logits for prediction in adapter.step_many(stream)])
