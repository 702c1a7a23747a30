"""The event log of a member of a collective."""

from pathlib import Path

from syncline.live.context import RunContext
from syncline.live.steps import StepResult
from syncline.records.events import EventLog, read_events


class StepLog:
    """One member's event log.

    Args:
        num_rows: of an earlier log that are kept.
    """

    def __init__(self, path: Path, num_rows: int, rank: int, num_members: int, averages_first: bool) -> None:
        self._log = EventLog(path, num_rows)
        self._rank, self._num_members, self._averages_first = rank, num_members, averages_first
        self.flush, self.close = self._log.flush, self._log.close

    @classmethod
    def open(cls, context: RunContext, rank: int, updates: int) -> "StepLog":
        """Of a run that continues after so many updates."""
        path, averages_first = context.folder / f"events-{rank}.arrow", context.config.strategy.averages_first
        num_rows = 0 if context.resume is None else rows_before(path, updates, averages_first)
        return cls(path, num_rows, rank, context.config.cluster.workers, averages_first)

    def append(self, step: int, result: StepResult) -> None:
        """This member's part of one step."""
        log, rank, gradient = self._log, self._rank, result.gradient
        push, computed_at = step * self._num_members + rank, gradient.computed_at
        if self._averages_first and step:
            log.append(result.averaged_at, "granted", rank, 0, -1, step, 0.0, "all-reduce")
        log.append(gradient.started_at, "started", rank, -1, -1, step, computed_at - gradient.started_at, "")
        if gradient.slowdown_s:
            slowed_at = computed_at - gradient.delay_s - gradient.slowdown_s
            log.append(slowed_at, "delayed", rank, -1, -1, -1, gradient.slowdown_s, "slow")
        if gradient.delay_s:
            log.append(computed_at - gradient.delay_s, "delayed", rank, -1, -1, -1, gradient.delay_s, "compute")
        log.append(computed_at, "computed", rank, -1, -1, step, gradient.loss, "")
        log.append(computed_at, "pushed", rank, 0, push, step, step, "")
        if self._averages_first:  # the exchange of the next step grants
            log.append(computed_at, "applied", rank, 0, push, step + 1, 0.0, "own step")
        else:
            log.append(result.averaged_at, "applied", rank, 0, push, step + 1, 0.0, "all-reduce")
            log.append(result.averaged_at, "granted", rank, 0, -1, step + 1, 0.0, "all-reduce")


def rows_before(path: Path, updates: int, averages_first: bool) -> int:
    """Rows of this log that precede the step after so many updates."""
    log = read_events(path)
    rows = zip(log["kind"].to_pylist(), log["version"].to_pylist(), strict=True)
    next_step = ("granted" if averages_first else "started", updates)
    return next((number for number, row in enumerate(rows) if row == next_step), log.num_rows)
