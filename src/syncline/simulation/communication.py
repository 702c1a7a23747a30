"""How long workers communicate in virtual time, and for how much of it their messages queue at a NIC.

A worker is sending from the end of a gradient until its last block has arrived, or until it continues without that.
It is receiving from the last grant, once its gradient has arrived, until it begins the next one. (These are the states
of records/spans.py.) Where workers start by their own rule, nobody can tell a block's way from the wait for it:
all of that is waiting, and only sending is counted. While a worker computes, what is sent costs it nothing.
"""

from collections.abc import Collection, Sequence

from syncline.strategies.machine import PlainState


class Communication(PlainState):
    """The clocks of all workers.

    Args:
        alone_s: by worker, what a push, and what the weights, all blocks of them, take on an idle network.
        receives: workers receive as soon as they are granted; else they start by their own rule.
    """

    seconds: float  # sending and receiving, of all workers
    queueing_s: float  # of these, beyond what the messages would have taken alone
    _sent_at: list[float]  # when each worker's last gradient was finished
    _num_missing: list[int]  # blocks of it that have not arrived
    _arrived_at: list[float]  # when its last block had
    _num_unanswered: list[int]  # shards whose answer to it is to come
    _granted_at: list[float]  # when the last answer left
    computes_until: list[float]  # of workers that compute meanwhile

    def __init__(self, num_workers: int, num_shards: int, alone_s: Sequence[Sequence[float]], receives: bool) -> None:
        self.seconds = self.queueing_s = 0.0
        self._num_shards, self._alone_s, self._receives = num_shards, alone_s, receives
        self._sent_at, self._arrived_at, self._granted_at = ([0.0] * num_workers for _ in range(3))
        self.computes_until = [0.0] * num_workers
        self._num_missing, self._num_unanswered = ([0] * num_workers for _ in range(2))

    def sent(self, worker: int, now: float) -> None:
        """A gradient leaves for all shards."""
        self._sent_at[worker] = now
        self._num_missing[worker] = self._num_unanswered[worker] = self._num_shards

    def arrived(self, worker: int, now: float, network_s: float, is_stale: bool) -> None:
        """A block of the last gradient has arrived.

        Args:
            network_s: that the network took for it, injected delays left out.
            is_stale: what the worker continues with was sent when its gradient became stale.
        """
        if is_stale:
            self._num_unanswered[worker] = 0
        missing = self._num_missing[worker]
        if missing == 0:
            return
        self._num_missing[worker] = missing - 1
        if missing == 1:
            self._arrived_at[worker] = now
            self._add(self._idle_s(worker, self._sent_at[worker], now), network_s - self._alone_s[worker][0])

    def granted(self, worker: int, now: float) -> None:
        """A shard answers; a newer block for a worker to which one is under way has no effect."""
        if self._num_unanswered[worker]:
            self._num_unanswered[worker] -= 1
            self._granted_at[worker] = now

    def started(self, worker: int, now: float, network_s: float) -> None:
        """The worker, which was not computing, has what it needs; as in `arrived`."""
        self._num_unanswered[worker] = 0
        if self._num_missing[worker]:
            self._num_missing[worker] = 0
            self.seconds += self._idle_s(worker, self._sent_at[worker], now)
        elif self._receives:
            granted_at, arrived_at = self._granted_at[worker], self._arrived_at[worker]
            latest = granted_at if granted_at > arrived_at else arrived_at
            self._add(self._idle_s(worker, latest, now), network_s - self._alone_s[worker][1])

    def lost(self, worker: int, now: float, is_computing: bool) -> None:
        """The worker's process is lost."""
        if self._num_missing[worker]:
            self.seconds += self._idle_s(worker, self._sent_at[worker], now)
        elif self._receives and not self._num_unanswered[worker] and not is_computing:
            self.seconds += self._idle_s(worker, max(self._granted_at[worker], self._arrived_at[worker]), now)
        self._num_missing[worker] = self._num_unanswered[worker] = 0
        self.computes_until[worker] = 0.0

    def back(self, worker: int, now: float) -> None:
        """It is there again, and sent the weights."""
        self._granted_at[worker] = self._arrived_at[worker] = now

    def end(self, now: float, computing: Collection[int]) -> None:
        """The run is over while these workers compute."""
        for worker, missing in enumerate(self._num_missing):
            if missing:
                self.seconds += self._idle_s(worker, self._sent_at[worker], now)
            elif self._receives and not self._num_unanswered[worker] and worker not in computing:
                self.seconds += self._idle_s(worker, max(self._granted_at[worker], self._arrived_at[worker]), now)

    def _idle_s(self, worker: int, begin: float, end: float) -> float:
        """Seconds from begin to end in which the worker does not compute."""
        until = self.computes_until[worker]
        return end - begin if until <= begin else max(0.0, end - until)

    def _add(self, seconds: float, queueing_s: float) -> None:
        self.seconds += seconds
        if queueing_s > 0:
            self.queueing_s += queueing_s if queueing_s < seconds else seconds
