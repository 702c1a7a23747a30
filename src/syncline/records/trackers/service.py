"""Writes a record to a tracking service, which may follow a record in progress."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol

from syncline.records.store import FINISHED, read_metrics, read_summary, status


class Service(Protocol):
    is_live: bool  # can show a run in progress

    def begin(self, folder: Path) -> None:
        """Start an empty run; one with the same name is replaced."""

    def log_evaluation(self, row: Mapping[str, Any]) -> None:
        """Add one line of metrics.jsonl."""

    def log_result(self, folder: Path, summary: Mapping[str, Any]) -> None:
        """Add what is known once the run has finished."""

    def end(self, is_finished: bool) -> None:
        """Close the run."""


def mirror(service: Service, folder: Path, place: Path, ticks: Iterable[object]) -> None:
    """Write a record to a service: what is new at each tick, and the result after the last.

    Args:
        folder: of the record.
        place: where the record moves when it is finished; may be equal to `folder`.
        ticks: one for each time at which to read the record.
    """
    sent: list[dict[str, Any]] | None = None
    for _ in ticks:
        folder = folder if folder.exists() else place
        rows = read_metrics(folder)
        if sent is None or rows[: len(sent)] != sent:  # the run was set back to a checkpoint
            service.begin(folder)
            sent = []
        for row in rows[len(sent) :]:
            service.log_evaluation(row)
        sent = rows
    if sent is None:
        return
    is_finished = status(folder) == FINISHED
    if is_finished:
        service.log_result(folder, read_summary(folder))
    service.end(is_finished)
