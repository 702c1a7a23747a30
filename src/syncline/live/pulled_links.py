"""A worker's connections to its shards where a pull rule decides when it continues, and with which blocks."""

import time
from dataclasses import replace

import torch
from torch import Tensor

from syncline.live.frames import Header, byte_view
from syncline.live.links import ArrivedBlock, Link, Links, Staging
from syncline.server.report import PushReport
from syncline.strategies.protocol import PullRule
from syncline.timing.cluster import DelayInjector


class PulledLinks(Links):
    """The connections of a worker with a pull rule, which decides when it continues, and with which blocks.

    Blocks arrive in memory of their own, at any time; which are used is decided when the worker continues.
    """

    def __init__(self, worker: int, staging: Staging, num_shards: int, rule: PullRule) -> None:
        super().__init__(worker, staging, num_shards)
        self._rule = rule
        self._continues_at: float | None = None  # monotonic; what the rule last said
        self._versions = torch.zeros(num_shards, dtype=torch.int64)  # of the blocks in use

    def await_blocks(self, delays: DelayInjector) -> bool:
        while self.open:
            self._announce(delays)
            now = time.monotonic()
            if self._continues_at is not None and self._continues_at <= now:
                break
            moments = [block.ready for link in self._links for block in link.waiting if not block.is_announced]
            later = [moment for moment in (*moments, self._continues_at) if moment is not None]
            self._receive_ready(max(0.0, min(later) - now) if later else None)
        if not self.open:
            return False
        for link in self._links:
            link.pull_delay_s = 0.0  # reported once
        for shard in self._rule.start():
            self._use_newest(self._links[shard])
        self._reset_buffers()
        self._continues_at = None
        return True

    def is_interrupted(self) -> bool:
        return False

    def push(self, delays: DelayInjector, report: PushReport, computed: float) -> bool:
        self.poll()  # the tag may depend on what has arrived meanwhile
        self._announce(delays)
        super().push(delays, report, computed)
        self._continues_at = self._rule.pushed(time.monotonic())
        return True

    def _announce(self, delays: DelayInjector) -> None:
        """Notify the rule of the blocks whose injected delay is over."""
        now = time.monotonic()
        for link in self._links:
            for block in link.waiting:
                if block.ready is None:
                    block.ready = block.arrived + delays.pull(link.shard)
                if not block.is_announced and block.ready <= now:
                    block.is_announced = True
                    self._continues_at = self._rule.arrived(now, link.shard, block.version)

    def _use_newest(self, link: Link) -> None:
        """The newest announced block replaces the one in use; older ones are dropped."""
        announced = [block for block in link.waiting if block.is_announced]
        if not announced:
            return
        newest = max(announced, key=lambda block: block.version)
        assert newest.ready is not None
        assert link.last is not None
        if newest.version >= link.last.version:
            link.weights.copy_(newest.weights)
            link.received_buffers.copy_(newest.buffers)
            link.last = replace(link.last, version=newest.version)
            link.arrived, link.pull_delay_s = newest.arrived, newest.ready - newest.arrived
            self._versions[link.shard] = newest.version
        link.waiting = [block for block in link.waiting if not block.is_announced]
        link.free += [(block.weights, block.buffers) for block in announced]

    def _push_order(self) -> list[Link]:
        """Beginning with another shard each time: else one block would always be the last, and never be used."""
        first = self._rule.tag % self._num_shards
        return sorted(self.open, key=lambda link: (link.shard - first) % self._num_shards)

    def _tag(self, version: int) -> int:
        return self._rule.tag

    def _appendix(self) -> list[memoryview]:
        return [byte_view(self._versions)]

    def _destination(self, link: Link) -> tuple[Tensor, Tensor]:
        return link.free.pop() if link.free else (link.weights.clone(), link.received_buffers.clone())

    def _arrived(self, link: Link, header: Header) -> None:
        assert link.destination is not None
        link.waiting.append(ArrivedBlock(header.version, *link.destination, time.monotonic()))
        if link.last is None:
            link.last = header

    def _closed(self, link: Link) -> None:
        self._continues_at = self._rule.closed(time.monotonic(), link.shard)
