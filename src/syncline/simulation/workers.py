"""The workers in virtual time: blocks arrive, a gradient is computed, it leaves, and so on.

A worker waits for one block of every shard, or it has a pull rule (strategies/protocol.py) that decides when it
continues and with which blocks. The gradient is of the versions that it has when it begins (executors.py).
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from syncline.learning.server import Gradient, Version
from syncline.progress import Totals
from syncline.rounds import SINGLE, Rounds
from syncline.server.interpreter import Log
from syncline.simulation.communication import Communication
from syncline.simulation.event_queue import EventQueue
from syncline.simulation.learners import Learners
from syncline.simulation.messages import Block, Computed, Event, PullTimer
from syncline.simulation.tensor_table import TensorTable
from syncline.strategies.protocol import PullRule
from syncline.timing.cluster import Cluster

CANCELLED = "cancelled"  # why a gradient is dropped that is being computed
_COLUMNS = ("num_missing", "finishes_at", "cancelled_s", "num_pulls", "num_sent")


class Workers:
    """All workers.

    Args:
        queue: receives what they will have finished.
        rules: the pull rule of each worker; empty where a worker waits for a block of every shard.
        learners: what the workers compute; None simulates time alone.
        rounds: the mini-batches of each push.
    """

    def __init__(
        self,
        cluster: Cluster,
        queue: EventQueue[Event],
        *,
        rules: Sequence[PullRule],
        learners: Learners | None,
        communication: Communication,
        totals: Totals,
        log: Log | None,
        rounds: Rounds,
    ) -> None:
        num_workers, num_shards = cluster.num_workers, cluster.num_shards
        self.learners = learners
        self.communication = communication
        self.totals = totals
        self.rules = rules
        # Lists, by worker: with 10,000 workers an object each would not fit the caches.
        self.versions = [[0] * num_workers for _ in range(num_shards)]  # of each block that it has
        self.num_missing = [num_shards] * num_workers  # blocks that it waits for; 0 while it computes
        self.finishes_at = [math.inf] * num_workers  # seconds; the gradient that it began last
        self.cancelled_s = [0.0] * num_workers  # not computed, of gradients that were cancelled
        self.num_pulls = [0] * num_workers  # gradients begun, where there are rules
        self.num_sent = [0] * num_workers  # gradients
        self._goes_on_at: list[float | None] = [None] * num_workers  # when its rule lets it continue
        # The newest block of each shard that has arrived and is not taken, where there are rules.
        self._inboxes: list[dict[int, tuple[int, Version | None]]] = [{} for _ in rules]
        self.send_gradient: Callable[[int, float, Gradient | None], None]  # of a worker; set by the simulation
        self._queue = queue
        self._compute_s = cluster.compute_s if rounds == SINGLE else self._round_s
        self._of_a_batch_s, self._draw, self._rounds = cluster.compute_s, cluster.draw_compute, rounds
        self._log = log

    def announce(self, send_early: Callable[[int, float, float], None]) -> None:
        """From now on this is called when a worker begins a gradient, with when it ends, and the seconds without delay.

        A gradient is of one mini-batch.
        """

        def compute_s(worker: int) -> float:
            gradient_s, delay_s = self._draw(worker)
            send_early(worker, self._queue.now + (gradient_s + delay_s), gradient_s)
            return gradient_s + delay_s

        self._compute_s = compute_s

    def start(self, worker: int) -> None:
        """The worker begins its next gradient."""
        queue, duration = self._queue, self._compute_s(worker)
        if self._log is not None:
            because = self._rounds.told(self.num_sent[worker])
            self._log(queue.now, "started", worker, -1, -1, self.versions[0][worker], duration, because)
        self.finishes_at[worker] = at = queue.now + duration
        queue.push(at, worker)
        if self.learners is not None:
            self.learners.begin(worker, at)

    def _round_s(self, worker: int) -> float:
        """Seconds of all mini-batches of the worker's next push."""
        return sum(self._of_a_batch_s(worker) for _ in range(self._rounds.size(self.num_sent[worker])))

    def finish(self, worker: Computed) -> str | None:
        """A worker has finished its gradient. Returns why the run ends, if it does."""
        loss, gradient = 0.0, None
        if self.learners is not None:
            loss, gradient = self.learners.compute(worker)
            self.totals.loss_sum += loss
            self.totals.loss_count += 1
            if not math.isfinite(loss):
                return "diverged"
        if self._log is not None:
            self._log(self._queue.now, "computed", worker, -1, -1, self.versions[0][worker], loss, "")
        self.send_gradient(worker, loss, gradient)
        return None

    def cancel(self, worker: int) -> None:
        """What the worker computes is cancelled."""
        at = self.finishes_at[worker]
        unspent_s = at - self._queue.now
        self._queue.cancel(at, worker)
        if self.learners is not None:
            self.learners.cancel(worker)
        self.cancelled_s[worker] += unspent_s
        self.totals.interrupted_by_worker[worker] += 1
        if self._log is not None:
            self._log(self._queue.now, "dropped", worker, -1, -1, self.versions[0][worker], unspent_s, CANCELLED)

    def receive(self, block: Block) -> None:
        """A block has arrived."""
        worker, shard = block.worker, block.shard
        if self.rules:
            self.receive_under_rule(worker, shard, block.version, block.weights)
            return
        if block.version < self.versions[shard][worker]:  # overtaken by the block of an interrupt that came after it
            if block.weights is not None and self.learners is not None:
                self.learners.unpin(shard, block.weights)
            return
        was_computing = self.num_missing[worker] == 0
        if was_computing:
            self.cancel(worker)
        else:
            self.num_missing[worker] -= 1
        if not block.repeats:
            self._take(worker, shard, block.version, block.weights)
        if self.num_missing[worker] == 0:
            if not was_computing:
                self.communication.started(worker, self._queue.now, block.through_at - block.sent_at)
            self.start(worker)

    def receive_under_rule(self, worker: int, shard: int, version: int, weights: Version | None) -> None:
        """A block has arrived at a worker whose rule decides when it continues, and whether with this block."""
        inbox = self._inboxes[worker]
        known, unused = inbox.get(shard, (-1, None))
        if version > known:
            inbox[shard] = version, weights
        else:
            unused = weights  # it was overtaken by a newer one
        if self.learners is not None and unused is not None:
            self.learners.unpin(shard, unused)
        self._go_on(worker, self.rules[worker].arrived(self._queue.now, shard, version))

    def pushed(self, worker: int) -> None:
        """The worker has sent its gradient; its rule may let it continue."""
        if self.rules:
            self._go_on(worker, self.rules[worker].pushed(self._queue.now))

    def pull_timer(self, timer: PullTimer) -> None:
        """The time may have come at which the worker continues."""
        if self._goes_on_at[timer.worker] == self._queue.now:
            self._go_on(timer.worker, self._queue.now)

    def _go_on(self, worker: int, when: float | None) -> None:
        """The rule has said when the worker may start."""
        now, inbox = self._queue.now, self._inboxes[worker]
        if when is None or when > now:
            self._goes_on_at[worker] = when
            if when is not None:
                self._queue.push(when, PullTimer(worker))
            return
        self._goes_on_at[worker] = None
        for shard in self.rules[worker].start():
            if shard in inbox:  # else it has the newest already
                self._take(worker, shard, *inbox.pop(shard))
        if self._log is not None:
            versions = [column[worker] for column in self.versions]
            words = " ".join(map(str, versions))
            self._log(now, "pulled", worker, -1, -1, min(versions), self.num_pulls[worker], words)
        self.num_pulls[worker] += 1
        self.communication.started(worker, now, 0.0)
        self.start(worker)

    def _take(self, worker: int, shard: int, version: int, weights: Version | None) -> None:
        """The worker's next gradient is computed at this version of the block."""
        self.versions[shard][worker] = version
        if self.learners is not None and weights is not None:
            self.learners.take(worker, shard, weights)

    def state_dict(self, table: TensorTable) -> dict[str, Any]:
        """Plain types; the tensors go to the table."""
        return {name: list(getattr(self, name)) for name in _COLUMNS} | {
            "versions": [list(column) for column in self.versions],
            "goes_on_at": list(self._goes_on_at),
            "rules": [rule.state_dict() for rule in self.rules],
            "inboxes": [
                [(shard, version, table.put(weights)) for shard, (version, weights) in inbox.items()]
                for inbox in self._inboxes
            ],
        }

    def load_state_dict(self, state: Mapping[str, Any], table: TensorTable) -> None:
        """Continue from what `state_dict` gave."""
        for name in _COLUMNS:
            setattr(self, name, list(state[name]))
        self.versions = [list(column) for column in state["versions"]]
        self._goes_on_at = list(state["goes_on_at"])
        for rule, theirs in zip(self.rules, state["rules"], strict=True):
            rule.load_state_dict(theirs)
        self._inboxes = [
            {shard: (version, table.version(weights)) for shard, version, weights in inbox}
            for inbox in state["inboxes"]
        ]
