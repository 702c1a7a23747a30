"""The workers in virtual time: what each has, waits for and computes.

A worker waits for one block of every shard, or it has a pull rule (strategies/protocol.py) that decides when it
continues and with which blocks. Its gradient is of the versions that it has when it begins (executors.py). Where it
overlaps computing with messages it begins the next one when it has pushed, and waits before it pushes that.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from syncline.learning.parameters import Gradient, Version
from syncline.progress import Totals
from syncline.records import rows
from syncline.records.rows import Log
from syncline.simulation.events import Block
from syncline.simulation.tensor_table import TensorTable
from syncline.simulation.worker_gradients import WorkerGradients
from syncline.strategies.protocol import PullRule

_COLUMNS = ("num_missing", "finishes_at", "goes_on_at", "cancelled_s", "num_sent", "num_arrived", "back_at")


class Workers:
    """All workers. Lists, by worker: with 10,000 of them an object each would not fit the caches.

    Args:
        rules: the pull rule of each worker; empty where a worker waits for a block of every shard.
        overlap: a worker computes while it waits.
        worker_gradients: what the workers compute; None simulates time alone.
    """

    def __init__(
        self,
        num_workers: int,
        num_shards: int,
        rules: Sequence[PullRule],
        overlap: bool,
        worker_gradients: WorkerGradients | None,
        totals: Totals,
        log: Log | None,
    ) -> None:
        self.rules = rules
        self.versions = [[0] * num_workers for _ in range(num_shards)]  # of each block that it has
        self.num_missing = [num_shards] * num_workers  # blocks that it waits for; 0 while it computes
        self.finishes_at = [math.inf] * num_workers  # seconds; the gradient that it began last
        self.goes_on_at: list[float | None] = [None] * num_workers  # when its rule lets it continue
        self.cancelled_s = [0.0] * num_workers  # not computed, of gradients that were cancelled
        self.num_sent = [0] * num_workers  # gradients
        self.num_arrived = [0] * num_workers  # of them, over a network
        # The newest block of each shard that has arrived and is not taken, where one may arrive at any time.
        takes_later = num_workers if rules or overlap else 0
        self._inboxes: list[dict[int, tuple[int, Version | None]]] = [{} for _ in range(takes_later)]
        self.held: dict[int, float] = {}  # workers that may not push yet -> when their gradient was finished
        self._worker_gradients, self._totals, self._log = worker_gradients, totals, log
        self._first_rule = rules[0].state_dict() if rules else {}
        self.lost_at: dict[int, float] = {}  # seconds; of the workers that are away
        self.back_at = [0.0] * num_workers  # seconds; what was sent to or by a worker before is lost
        self.away_s = 0.0  # of all workers, absences that are over

    def finish(self, worker: int, now: float) -> tuple[float, Gradient | None]:
        """A worker has finished its gradient. Returns its loss and content; (0, None) where time alone is simulated."""
        loss, gradient = 0.0, None
        self.finishes_at[worker] = math.inf
        if self._worker_gradients is not None:
            loss, gradient = self._worker_gradients.compute(worker)
            self._totals.loss_sum += loss
            self._totals.loss_count += 1
        if self._log is not None and math.isfinite(loss):
            self._log(rows.computed(now, worker, self.versions[0][worker], loss))
        return loss, gradient

    def cancel(self, worker: int, now: float) -> float:
        """What the worker computes is cancelled. Returns when it would have been finished."""
        at, self.finishes_at[worker] = self.finishes_at[worker], math.inf
        if self._worker_gradients is not None:
            self._worker_gradients.cancel(worker)
        self.cancelled_s[worker] += at - now
        self._totals.interrupted_by_worker[worker] += 1
        if self._log is not None:
            self._log(rows.dropped(now, worker, "cancelled", self.versions[0][worker], at - now))
        return at

    def lose(self, worker: int, now: float) -> float:
        """The worker's process is lost, with all that it had.

        Returns:
            When what it computed would have been finished; infinite: it computed nothing.
        """
        at, self.finishes_at[worker] = self.finishes_at[worker], math.inf
        if at < math.inf:
            self.cancelled_s[worker] += at - now
        self.lost_at[worker] = now
        self.num_missing[worker] = len(self.versions)
        self.goes_on_at[worker] = None
        self.held.pop(worker, None)
        if self._worker_gradients is not None:
            self._worker_gradients.lose(worker)
        if self._inboxes:
            for shard, (_, weights) in self._inboxes[worker].items():
                self._unpin(shard, weights)
            self._inboxes[worker].clear()
        if self.rules:
            self.rules[worker].load_state_dict(self._first_rule)
        return at

    def come_back(self, worker: int, now: float, over_network: bool) -> None:
        """It is there again, without weights, and computes again what has not arrived."""
        self.away_s += now - self.lost_at.pop(worker)
        self.back_at[worker] = now
        for column in self.versions:
            column[worker] = 0
        if over_network:
            self.num_sent[worker] = self.num_arrived[worker]
            if self._worker_gradients is not None:
                self._worker_gradients.seek(worker, self.num_arrived[worker])

    def is_void(self, worker: int, sent_at: float) -> bool:
        """What was sent to or by the worker then has not arrived before it was lost."""
        return worker in self.lost_at or sent_at < self.back_at[worker]

    def drop(self, block: Block) -> None:
        """A block comes to nothing."""
        self._unpin(block.shard, block.weights)

    def _unpin(self, shard: int, weights: Version | None) -> None:
        if self._worker_gradients is not None and weights is not None:
            self._worker_gradients.unpin(shard, weights)

    def is_overtaken(self, block: Block) -> bool:
        """A newer block, that of an interrupt, has come before this one, which is dropped."""
        if block.version >= self.versions[block.shard][block.worker]:
            return False
        self.drop(block)
        return True

    def receive(self, block: Block) -> bool:
        """A block has arrived at a worker that does not compute. Returns whether it has all blocks now."""
        worker = block.worker
        if self.num_missing[worker]:
            self.num_missing[worker] -= 1
        if not block.repeats:
            self._take(worker, block.shard, block.version, block.weights)
        return self.num_missing[worker] == 0

    def receive_meanwhile(self, block: Block) -> bool:
        """A block has arrived at a worker that may compute. Returns whether all shards have answered its last push."""
        worker = block.worker
        self.num_missing[worker] -= 1
        if not block.repeats:
            self._inboxes[worker][block.shard] = block.version, block.weights
        return self.num_missing[worker] == 0

    def take_received(self, worker: int) -> None:
        """The worker's next gradient is of what has arrived."""
        for shard, (version, weights) in self._inboxes[worker].items():
            self._take(worker, shard, version, weights)
        self._inboxes[worker].clear()

    def receive_under_rule(
        self, worker: int, shard: int, version: int, weights: Version | None, now: float
    ) -> float | None:
        """A block has arrived. Returns when the worker may continue, as `PullRule.arrived`."""
        inbox = self._inboxes[worker]
        known, unused = inbox.get(shard, (-1, None))
        if version > known:
            inbox[shard] = version, weights
        else:
            unused = weights  # it was overtaken by a newer one
        self._unpin(shard, unused)
        return self.rules[worker].arrived(now, shard, version)

    def pull(self, worker: int, now: float) -> None:
        """The worker continues with the blocks that its rule takes."""
        self.goes_on_at[worker], inbox = None, self._inboxes[worker]
        for shard in self.rules[worker].start():
            if shard in inbox:  # else it has the newest already
                self._take(worker, shard, *inbox.pop(shard))
        if self._log is not None:
            versions = [column[worker] for column in self.versions]
            self._log(rows.pulled(now, worker, -1, self.num_sent[worker], versions))

    def _take(self, worker: int, shard: int, version: int, weights: Version | None) -> None:
        """The worker's next gradient is computed at this version of the block."""
        self.versions[shard][worker] = version
        if self._worker_gradients is not None and weights is not None:
            self._worker_gradients.take(worker, shard, weights)

    def state_dict(self, table: TensorTable) -> dict[str, Any]:
        """Plain types; the tensors go to the table."""
        return {name: list(getattr(self, name)) for name in _COLUMNS} | {
            "versions": [list(column) for column in self.versions],
            "rules": [rule.state_dict() for rule in self.rules],
            "held": list(self.held.items()),
            "lost_at": list(self.lost_at.items()),
            "away_s": self.away_s,
            "inboxes": [
                [(shard, version, table.put(weights)) for shard, (version, weights) in inbox.items()]
                for inbox in self._inboxes
            ],
        }

    def load_state_dict(self, state: Mapping[str, Any], totals: Totals, table: TensorTable) -> None:
        """Continue from what `state_dict` gave; `totals`: of the run until then."""
        self._totals = totals
        for name in _COLUMNS:
            setattr(self, name, list(state[name]))
        self.versions = [list(column) for column in state["versions"]]
        self.held, self.lost_at, self.away_s = dict(state["held"]), dict(state["lost_at"]), state["away_s"]
        for rule, theirs in zip(self.rules, state["rules"], strict=True):
            rule.load_state_dict(theirs)
        self._inboxes = [
            {shard: (version, table.version(weights)) for shard, version, weights in inbox}
            for inbox in state["inboxes"]
        ]
