"""When each worker of a collective computes and exchanges: a recurrence, since a worker waits for its group alone.

With d_i(t) the seconds of worker i's gradient of step t and x those of an exchange:

    after_step       begun_i(t) = joined_i(t-1)             computed_i(t) = begun_i(t) + d_i(t)
                     joined_i(t) = x + max of computed_j(t) over i's group of step t
    before_forward   begun_i(t) = x + max of computed_j(t-1) over i's group of step t

Where gradients are exchanged in parts k = 1, 2, ... while they are computed, part k being ready after the share r_k of
d_i(t), and injected delays come before the gradient:

    joined(t, k) = x_k + max(joined(t, k-1), max of computed_j(t) - (1 - r_k) d_j(t) over the group)

What a member does with what it has received (`cluster.update_s`) ends the exchange.

Peers are groups that overlap: the mean of a group's members is for one of them.

Where s successive exchanges spread what one worker has to all (s = 2 of rows and columns that alternate), no worker is
ever more than s gradients ahead: before a worker begins step t+1 its group has computed step t, before that the groups
of step t-1 of all these have computed step t-1, and so on; s such steps have all workers.

Shape legend: P workers, K steps of a block.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from syncline.rounds import Rounds
from syncline.strategies.collective import Averaging
from syncline.timing.cluster import Cluster
from syncline.timing.distributions import Array
from syncline.timing.draws import BLOCK


@dataclass(frozen=True, slots=True)
class Part:
    """What the members of a group exchange at once.

    Where there are several parts, they are exchanged one after another, as soon as all members have them.
    """

    seconds: Callable[[Sequence[int]], float]  # of a group of these members
    ready: float = 1.0  # the share of a gradient's time after which a member has it


class ExchangeTimes:
    """The groups of a step, and what their exchange takes.

    Args:
        groups: every worker is a receiver of one of them.
        parts: in order; the last one is ready when the gradient is.
        update_s: what each member spends on what it has received.
    """

    def __init__(self, groups: Sequence[Averaging], parts: Sequence[Part], update_s: float = 0.0) -> None:
        sizes = [len(group.members) for group in groups]
        self.groups = groups
        self._members = np.concatenate([np.asarray(group.members) for group in groups])  # group after group
        self._in_order = bool((np.diff(self._members) > 0).all())
        self._starts = np.cumsum([0, *sizes[:-1]])
        receivers = np.concatenate([np.asarray(group.receivers) for group in groups])
        self._group_of = np.empty_like(receivers)  # [P]
        self._group_of[receivers] = np.repeat(np.arange(len(groups)), [len(group.receivers) for group in groups])
        self._parts = [(part.ready, np.array([part.seconds(group.members) for group in groups])) for part in parts]
        self._update_s = update_s
        self._seconds = sum((seconds for _, seconds in self._parts), np.full(len(sizes), update_s))
        self.seconds = self._seconds.take(self._group_of)  # [P], what each worker's takes after its gradient

    def joined(self, computed: Array) -> Array:
        """When each worker has the mean of its group, if it was ready for it at `computed`; both [P]."""
        last = self._last(computed)
        last += self._seconds
        return last.take(self._group_of)

    def overlapped(self, computed: Array, gradient: Array) -> tuple[Array, Array]:
        """The same where parts are exchanged during the gradients, which took so many seconds; all [P].

        Returns:
            When each worker has the mean, and the seconds of that after the last gradient of its group.
        """
        at = np.full(len(self._starts), -np.inf)
        for ready, seconds in self._parts:
            at = np.maximum(at, self._last(computed - (1.0 - ready) * gradient)) + seconds
        at += self._update_s
        after = at - self._last(computed)
        return at.take(self._group_of), after.take(self._group_of)

    def _last(self, moments: Array) -> Array:
        """The latest of each group."""
        if not self._in_order:
            moments = moments.take(self._members)
        last: Array = np.maximum.reduceat(moments, self._starts)
        return last

    @property
    def overlaps(self) -> bool:
        """Parts are exchanged before the gradient is complete."""
        return len(self._parts) > 1


@dataclass(frozen=True, slots=True)
class StepTimes:
    """K steps; each [K, P], in seconds."""

    begun: Array
    gradient: Array  # duration, without the injected delay
    delay: Array
    computed: Array
    ended: Array  # the exchange, where it closes a step
    exchange: Array  # seconds of it


class StepClock:
    """The recurrence at the head of this file.

    Args:
        exchanges: of each turn.
        turn: step -> its turn.
        averages_first: a step begins with its exchange.
        rounds: the mini-batches of each step.
    """

    def __init__(
        self,
        cluster: Cluster,
        exchanges: Sequence[ExchangeTimes],
        turn: Callable[[int], int],
        averages_first: bool,
        rounds: Rounds,
    ) -> None:
        self._cluster, self._exchanges, self._turn, self._averages_first = cluster, exchanges, turn, averages_first
        self._now = np.zeros(cluster.num_workers)  # where the last step left each worker
        self._step = 0
        self._begun = self._now, self._step  # before the last block
        self._rounds = rounds

    def state_dict(self) -> dict[str, Any]:
        """From which `next_block` gives the last block again; plain types."""
        now, step = self._begun
        return {"now": now.tolist(), "step": step}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._now, self._step = np.array(state["now"]), state["step"]

    def _draw(self) -> Array:
        """Seconds of the next `BLOCK` steps: of the gradients of each, and of their delays, [2, P, BLOCK]."""
        batches = [self._rounds.batches(self._step + row) for row in range(BLOCK)]
        begin, end = batches[0].start, batches[-1].stop
        drawn = np.stack(self._cluster.draw_computes(begin, end - begin))
        return np.add.reduceat(drawn, [each.start - begin for each in batches], axis=2)

    def next_block(self) -> StepTimes:
        self._begun = self._now, self._step
        gradient, delay = (np.ascontiguousarray(seconds.T) for seconds in self._draw())
        duration = gradient + delay
        begun, computed, ended, exchange_s = (np.empty_like(duration) for _ in range(4))
        now = self._now
        for row, seconds in enumerate(duration):
            exchange = self._exchanges[self._turn(self._step + row)]
            exchange_s[row] = exchange.seconds
            if exchange.overlaps:
                begun[row] = now
                np.add(now, seconds, out=computed[row])
                ended[row], exchange_s[row] = exchange.overlapped(computed[row], gradient[row])
                now = ended[row]
            elif self._averages_first:
                begun[row] = exchange.joined(now)
                now = ended[row] = np.add(begun[row], seconds, out=computed[row])
            else:
                begun[row] = now
                now = ended[row] = exchange.joined(np.add(now, seconds, out=computed[row]))
        self._now = now
        self._step += len(duration)
        return StepTimes(begun, gradient, delay, computed, ended, exchange_s)
