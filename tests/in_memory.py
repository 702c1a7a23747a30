"""Runs without files, for the tests of verdicts: many of them are made in no time."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from reports.records import Run


@dataclass(frozen=True)
class RunInMemory(Run):
    """A run whose config and evaluations are given."""

    config: Mapping[str, Any] = field(default_factory=dict)  # type: ignore[assignment]
    metrics: list[dict[str, Any]] = field(default_factory=list)  # type: ignore[assignment]


def learned(label: str, seed: int, end: float) -> RunInMemory:
    """On ten classes, from 10 % to `end`."""
    rows = [{"time_s": 0.0, "accuracy": 0.1}, {"time_s": 1.0, "accuracy": end}]
    summary = {"metric": "accuracy", "status": "finished"}
    return RunInMemory(label, seed, Path(), summary, {"dataset": {"name": "cifar10"}}, rows)
