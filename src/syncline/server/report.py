"""What a worker reports with its push, whether the push came over a socket, from the simulator or from an event log."""

from dataclasses import dataclass

from syncline.records import rows
from syncline.records.rows import Log
from syncline.rounds import Rounds


@dataclass(frozen=True, slots=True)
class PushReport:
    """How a gradient was computed. Times are seconds of the run's clock, durations are seconds."""

    worker: int
    iteration: int  # the worker's own count of pushes, from 0
    version: int = 0  # of the block at which the gradient was computed
    tag: int = 0  # the version that the strategy takes the gradient to be of
    loss: float = 0.0  # of the mini-batch
    # Since this worker's last push:
    cancelled: int = 0  # gradients that an interrupt cancelled before they were computed, or in their injected delay
    wasted: int = 0  # gradients that an interrupt made stale before they were pushed, but after they were computed
    lost_s: float = 0.0  # that these took
    # The last pull, of this shard's block:
    pulled_at: float = 0.0  # the block's arrival
    pull_delay_s: float = 0.0  # injected after it
    # The computation, of all local steps. The injected `slowdown_s`, then `compute_delay_s`, lie at its end,
    # or, if the gradient left in parts, between and before them; event logs show them at the end, too.
    started_at: float = 0.0
    computed_at: float = 0.0  # the end
    slowdown_s: float = 0.0  # by which a slow worker stretches the computation
    compute_delay_s: float = 0.0
    # The push, to this shard:
    push_delay_s: float = 0.0  # injected after `computed_at`


def note_computation(log: Log, report: PushReport, rounds: Rounds) -> None:
    """Rows of how a gradient was computed."""
    worker, begun, done = report.worker, report.started_at, report.computed_at
    log(rows.started(begun, worker, report.version, done - begun, rounds.describe(report.iteration)))
    # The slowdown follows the worker's own computation, the injected delay the slowdown, as `PushReport` says.
    if report.slowdown_s:
        at = done - report.compute_delay_s - report.slowdown_s
        log(rows.delayed(at, worker, report.slowdown_s, "slow"))
    if report.compute_delay_s:
        log(rows.delayed(done - report.compute_delay_s, worker, report.compute_delay_s, "compute"))
    log(rows.computed(done, worker, report.version, report.loss))
