"""The totals of a collective: what every member counts, and what is known only after an all-reduce."""

import math
from array import array
from dataclasses import dataclass

import torch
import torch.distributed as dist

from syncline.live.process_group import all_reduce
from syncline.live.steps import StepResult
from syncline.progress import Totals


@dataclass
class MemberTotals:
    """What the run has done so far."""

    totals: Totals  # at first those at its start, or at the checkpoint
    computed_at: "array[float]"  # seconds of the run: each gradient of this member; only if there are replicas
    rank: int  # of this member
    samples_per_step: int  # of all members together
    has_replicas: bool  # members differ between all-reduces
    device: torch.device  # of what is all-reduced

    def __post_init__(self) -> None:
        self.busy_s = self.totals.busy_s_by_worker[self.rank]

    def count_step(self, result: StepResult) -> None:
        """A step was applied."""
        totals = self.totals
        if self.has_replicas:
            self.computed_at.append(result.gradient.computed_at)
        totals.updates += 1
        totals.samples += self.samples_per_step
        totals.time_s = result.ended_at
        totals.loss_sum += result.loss
        totals.loss_count += 1

    def before_checkpoint(self) -> None:
        """Complete the busy times: each replica writes its own, else the first member writes all."""
        if self.has_replicas:
            self.totals.busy_s_by_worker[self.rank] = self.busy_s
        else:
            self._share_busy()  # also waits until all logs are on disk

    def finish(self, ended_by: str, last_loss: float) -> str:
        """Complete the totals at the end, on every member. Returns why the run has ended, which may be divergence."""
        totals, world_size = self.totals, dist.get_world_size()
        self._share_busy()
        totals.used_by_worker = [totals.updates] * world_size
        totals.staleness = [totals.updates * world_size]
        totals.max_lead = min(totals.updates, 1, world_size - 1)
        if self.has_replicas and ended_by != "stop":
            totals.time_s, is_diverged = self.largest(totals.time_s, float(not math.isfinite(last_loss)))
            totals.max_lead = max(totals.max_lead, self._shared_lead())
            return "diverged" if is_diverged else ended_by
        return ended_by

    def largest(self, *values: float) -> list[float]:
        """The largest of all members, of each value."""
        shared = torch.tensor(values, dtype=torch.float64, device=self.device)
        all_reduce(shared, op=dist.ReduceOp.MAX)
        largest: list[float] = shared.tolist()
        return largest

    def _share_busy(self) -> None:
        busy = torch.zeros(dist.get_world_size(), dtype=torch.float64, device=self.device)
        busy[self.rank] = self.busy_s
        all_reduce(busy)
        self.totals.busy_s_by_worker = busy.tolist()

    def _shared_lead(self) -> int:
        """Two if a member had computed a gradient before another one had computed the previous one, else 0.

        A larger lead is impossible: before a member begins step t+1 its group of step t has computed step t, and the
        groups of step t-1 of these members, which are all members, have computed step t-1.
        """
        shape = len(self.computed_at), dist.get_world_size()
        computed = torch.zeros(shape, dtype=torch.float64, device=self.device)
        computed[:, self.rank] = torch.tensor(self.computed_at, dtype=torch.float64)
        all_reduce(computed)
        return 2 if bool((computed[1:].amin(1) < computed[:-1].amax(1)).any()) else 0
