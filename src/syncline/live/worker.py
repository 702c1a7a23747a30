"""A worker's process: gradients at the weights it was granted, pushed to every shard, each answered with its block.

One thread computes and receives; whatever it waits for, a message of a shard ends the waiting. To several shards it
sends at once, and from several it receives what is there of each: one that is slow, or busy with others, holds up none.
"""

import select
import socket
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from syncline.assembly import Learner, build_learner, pick_device
from syncline.config import RunConfig
from syncline.learning.flat import FlatModule
from syncline.learning.gradient import WorkerBatches
from syncline.learning.server import blocks
from syncline.live.server import TINY_BYTES, view
from syncline.live.transport import Socket, Tls, WireError
from syncline.live.wire import Clock, Frame, Kind, Reader, ask_clock, connect, send, send_json
from syncline.strategies.protocol import PullRule
from syncline.timing.cluster import DelayInjector


class ShardGone(ConnectionError):
    """A shard closed the connection: it died, or it does not count on this worker any more."""


class Staging:
    """The flat vectors in host memory: the module's own on a CPU, pinned copies of them on a GPU."""

    def __init__(self, flat: FlatModule) -> None:
        self._flat = flat
        self._on_gpu = flat.weights.is_cuda
        self.weights, self.gradient, self.buffers = (
            torch.empty_like(tensor, device="cpu", pin_memory=True) if self._on_gpu else tensor
            for tensor in (flat.weights, flat.gradient, flat.buffers)
        )

    def to_device(self) -> None:
        if self._on_gpu:
            self._flat.weights.copy_(self.weights, non_blocking=True)
            self._flat.buffers.copy_(self.buffers, non_blocking=True)

    def from_device(self) -> None:
        if self._on_gpu:
            self.gradient.copy_(self._flat.gradient, non_blocking=True)
            self.buffers.copy_(self._flat.buffers, non_blocking=True)
            torch.cuda.synchronize(self._flat.weights.device)


@dataclass(slots=True)
class _Landed:
    """A block that came and is not in use, in memory of its own."""

    version: int
    weights: Tensor
    buffers: Tensor
    arrived: float  # monotonic
    ready: float | None = None  # when its injected delay is over; None while that is not drawn
    is_told: bool = False  # to the rule


@dataclass(slots=True)
class _Link:
    """The connection to one shard, and what last came over it."""

    shard: int
    sock: Socket
    reader: Reader
    clock: Clock  # the shard's
    weights: Tensor  # its block of the staged weights
    gradient: Tensor
    buffers: Tensor  # which the forward pass changes; empty but for the first shard
    came: Tensor  # the buffers as they came with the block that is in place
    last: Frame | None = None  # that brought the block that is in place
    coming: Frame | None = None  # of the block of which a part has come
    place: tuple[Tensor, Tensor] | None = None  # where that comes to: weights and buffers
    is_answered: bool = False  # since the last push
    arrived: float = 0.0  # when that was, monotonic
    pull_delay_s: float = 0.0
    is_open: bool = True  # the run goes on at this shard
    landed: list[_Landed] = field(default_factory=list)  # in order of arrival; none where blocks go straight in place
    spare: list[tuple[Tensor, Tensor]] = field(default_factory=list)  # memory to land in


class Links:
    """The connections to all shards, of a worker that waits for one answer of each.

    Args:
        interrupts: a block may come while the worker computes, which is then for nothing.
    """

    def __init__(self, worker: int, staging: Staging, num_shards: int, interrupts: bool = False) -> None:
        self.interrupted = False  # a block has come that is newer than the one at which the worker computes
        self._worker = worker
        self._staging = staging
        self._num_shards = num_shards
        self._interrupts = interrupts
        self._links: list[_Link] = []
        self._senders = ThreadPoolExecutor(num_shards, "sender")  # has no thread until it is given something
        self._zero_s: float | None = None  # the run's beginning on our monotonic clock, by the first shard's word

    def connect(
        self,
        addresses: Sequence[str],
        secret: bytes,
        tls: Tls | None,
        about: dict[str, int],
        dead_s: float | None = None,
    ) -> None:
        """Meet every shard: who we are, and how far its clock is from ours.

        Raises:
            ShardGone: one cannot be reached.
        """
        staging = self._staging
        for shard, (address, block) in enumerate(
            zip(addresses, blocks(staging.weights.numel(), self._num_shards), strict=True)
        ):
            try:
                sock = connect(address, secret, tls, dead_s)
                send_json(sock, {"worker": self._worker, **about})
                clock = ask_clock(sock)
            except OSError as error:
                raise ShardGone(f"shard {shard} at {address}: {error.strerror or error}") from None
            buffers = staging.buffers if shard == 0 else staging.buffers[:0]
            weights, gradient = staging.weights[block], staging.gradient[block]
            self._links.append(_Link(shard, sock, Reader(sock), clock, weights, gradient, buffers, buffers.clone()))

    def close(self) -> None:
        """Nobody sends any more."""
        for link in self._links:
            with suppress(OSError):
                link.sock.shutdown(socket.SHUT_RDWR)
        self._senders.shutdown()

    @property
    def open(self) -> list[_Link]:
        return [link for link in self._links if link.is_open]

    def clock(self, monotonic: float) -> float:
        """The run's seconds at this moment of our monotonic clock."""
        assert self._zero_s is not None
        return monotonic - self._zero_s

    def first_iteration(self) -> int | None:
        """Wait for the first block of every shard. Returns what they say is to be done next; None: nothing."""
        while any(link.last is None for link in self.open):
            self._receive_ready(None)
        return max((link.last.iteration for link in self.open if link.last is not None), default=None)

    def wait(self, seconds: float) -> bool:
        """Sleep so long, or until an interrupt; what shards say meanwhile is received. False if the run is over."""
        ends = time.monotonic() + seconds
        while (left := ends - time.monotonic()) > 0 and self.open and not self.interrupted:
            self._receive_ready(left)
        return bool(self.open)

    def poll(self) -> None:
        """Receive what has come."""
        while self.open and self._receive_ready(0.0):
            pass

    def await_blocks(self, pace: DelayInjector) -> bool:
        """Wait until the worker may go on with the blocks that are in place, and injected delays of them are over.

        Returns:
            False if the run is over at every shard.
        """
        while True:
            while any(not link.is_answered for link in self.open):
                self._receive_ready(None)
            for link in self.open:
                link.pull_delay_s = pace.pull(link.shard)
            delayed = [link.arrived + link.pull_delay_s for link in self.open if link.pull_delay_s]
            self.interrupted = False
            if delayed:
                self.wait(max(delayed) - time.monotonic())
            if not self.is_interrupted():  # nothing is begun that is for nothing already
                break
        self._reset_buffers()
        return bool(self.open)

    def is_interrupted(self) -> bool:
        """What the worker has computed is for nothing."""
        if self._interrupts:
            self.poll()
        return self.interrupted

    def push(self, pace: DelayInjector, frame: Frame, computed: float) -> bool:
        """Send the staged gradient to every shard, each at its time. False if an interrupt came before."""
        delays = {link.shard: pace.push(link.shard) for link in self._links}
        sending: list[tuple[_Link, Future[None]]] = []
        try:
            for link in sorted(self._in_turn(), key=lambda link: delays[link.shard]):
                if delays[link.shard]:
                    self.wait(computed + delays[link.shard] - time.monotonic())
                    if self.interrupted:
                        return False
                if not link.is_open:
                    continue
                assert link.last is not None
                header = replace(
                    frame,
                    version=link.last.version,
                    tag=self._tag(link.last.version),
                    push_delay_s=delays[link.shard],
                    pulled_at=self.clock(link.arrived),
                    pull_delay_s=link.pull_delay_s,
                )
                link.is_answered = False
                message = link.sock, header, [view(link.gradient), view(link.buffers), *self._appendix()]
                if self._num_shards > 1 and link.gradient.nbytes > TINY_BYTES:
                    sending.append((link, self._senders.submit(send, *message)))
                else:
                    with _naming(link):
                        send(*message)
        finally:  # the gradient's memory is used again
            for link, sent in sending:
                with _naming(link):
                    sent.result()
        return True

    def _reset_buffers(self) -> None:
        """The next gradient begins with the buffers of the block in place, also if that is not the first at it."""
        for link in self._links:
            link.buffers.copy_(link.came)

    def _in_turn(self) -> list[_Link]:
        """The open links, in the order in which they are pushed to."""
        return self.open

    def _tag(self, version: int) -> int:
        return version

    def _appendix(self) -> list[memoryview]:
        """What is pushed behind the gradient."""
        return []

    def _receive_ready(self, timeout: float | None) -> bool:
        """Receive from every shard that has said something. False if none has, within so many seconds."""
        links = self.open
        ready = [link for link in links if link.reader.pending]
        if not ready:
            readable, _, _ = select.select([link.sock for link in links], [], [], timeout)
            ready = [link for link in links if link.sock in readable]
        for link in ready:
            with _naming(link):
                self._receive(link)
        return bool(ready)

    def _receive(self, link: _Link) -> None:
        """A frame, or more of the block that it brings."""
        if link.coming is None:
            frame = link.reader.next()
            if frame.kind is Kind.STOP:
                link.is_open = False
                self._closed(link)
                return
            if frame.kind is Kind.REPEAT and link.last is not None and not link.is_answered:
                link.is_answered, link.arrived = True, time.monotonic()
                return
            if frame.kind is not Kind.BLOCK:
                raise WireError(f"an unexpected {frame.kind.name}")
            if self._zero_s is None and link.shard == 0:
                self._zero_s = link.clock.ours(frame.started_at)
            link.coming, link.place = frame, self._place(link)
            is_whole = link.reader.begin(frame, [view(part) for part in link.place])
        else:
            is_whole = link.reader.more()
        if is_whole:
            frame, link.coming = link.coming, None
            self._landed(link, frame)

    def _place(self, link: _Link) -> tuple[Tensor, Tensor]:
        """Weights and buffers for the block that begins to come."""
        if link.is_answered:
            if not self._interrupts:
                raise WireError("an unexpected BLOCK")
            self.interrupted, link.is_answered = True, False
        return link.weights, link.came

    def _landed(self, link: _Link, frame: Frame) -> None:
        """A block is there."""
        link.last, link.is_answered, link.arrived = frame, True, time.monotonic()

    def _closed(self, link: _Link) -> None:
        """The run is over at this shard."""


class PulledLinks(Links):
    """The connections of a worker whose rule says when it goes on, with which of the blocks that came.

    Blocks land in memory of their own: they may come at any time, and which are used is decided when all is ready.
    """

    def __init__(self, worker: int, staging: Staging, num_shards: int, rule: PullRule) -> None:
        super().__init__(worker, staging, num_shards)
        self._rule = rule
        self._goes_at: float | None = None  # monotonic; what the rule last said
        self._versions = torch.zeros(num_shards, dtype=torch.int64)  # of the blocks in place

    def await_blocks(self, pace: DelayInjector) -> bool:
        while self.open:
            self._tell(pace)
            now = time.monotonic()
            if self._goes_at is not None and self._goes_at <= now:
                break
            moments = [landed.ready for link in self._links for landed in link.landed if not landed.is_told]
            later = [moment for moment in (*moments, self._goes_at) if moment is not None]
            self._receive_ready(max(0.0, min(later) - now) if later else None)
        if not self.open:
            return False
        for link in self._links:
            link.pull_delay_s = 0.0  # told once
        for shard in self._rule.start():
            self._take(self._links[shard])
        self._reset_buffers()
        self._goes_at = None
        return True

    def is_interrupted(self) -> bool:
        return False

    def push(self, pace: DelayInjector, frame: Frame, computed: float) -> bool:
        self.poll()  # the tag may depend on what has come meanwhile
        self._tell(pace)
        super().push(pace, frame, computed)
        self._goes_at = self._rule.pushed(time.monotonic())
        return True

    def _tell(self, pace: DelayInjector) -> None:
        """The rule hears of the blocks whose injected delay is over."""
        now = time.monotonic()
        for link in self._links:
            for landed in link.landed:
                if landed.ready is None:
                    landed.ready = landed.arrived + pace.pull(link.shard)
                if not landed.is_told and landed.ready <= now:
                    landed.is_told = True
                    self._goes_at = self._rule.arrived(now, link.shard, landed.version)

    def _take(self, link: _Link) -> None:
        """The newest block that is ready takes the place of the one in use; those before it are for nothing."""
        told = [landed for landed in link.landed if landed.is_told]
        if not told:
            return
        newest = max(told, key=lambda landed: landed.version)
        assert newest.ready is not None
        assert link.last is not None
        if newest.version >= link.last.version:
            link.weights.copy_(newest.weights)
            link.came.copy_(newest.buffers)
            link.last = replace(link.last, version=newest.version)
            link.arrived, link.pull_delay_s = newest.arrived, newest.ready - newest.arrived
            self._versions[link.shard] = newest.version
        link.landed = [landed for landed in link.landed if not landed.is_told]
        link.spare += [(landed.weights, landed.buffers) for landed in told]

    def _in_turn(self) -> list[_Link]:
        """Another shard first each time: else one block would always be the last, and never be taken."""
        first = self._rule.tag % self._num_shards
        return sorted(self.open, key=lambda link: (link.shard - first) % self._num_shards)

    def _tag(self, version: int) -> int:
        return self._rule.tag

    def _appendix(self) -> list[memoryview]:
        return [view(self._versions)]

    def _place(self, link: _Link) -> tuple[Tensor, Tensor]:
        return link.spare.pop() if link.spare else (link.weights.clone(), link.came.clone())

    def _landed(self, link: _Link, frame: Frame) -> None:
        assert link.place is not None
        link.landed.append(_Landed(frame.version, *link.place, time.monotonic()))
        if link.last is None:
            link.last = frame

    def _closed(self, link: _Link) -> None:
        self._goes_at = self._rule.closed(time.monotonic(), link.shard)


@contextmanager
def _naming(link: _Link) -> Iterator[None]:
    """Whatever goes wrong with this connection means that its shard is gone."""
    try:
        yield
    except OSError as error:
        raise ShardGone(f"shard {link.shard}: {error}") from None


def work(config: RunConfig, worker: int, addresses: Sequence[str], secret: bytes, tls: Tls | None, place: int) -> None:
    """Be this worker until the run is over.

    Args:
        place: among the workers of this host, from 0; it says which GPU is this one's.

    Raises:
        ShardGone: a connection ended before.
    """
    torch.set_num_threads(config.threads)
    device = pick_device(config, place)
    learner = build_learner(config, device)
    flat, gradient_of = learner.flat, learner.gradient
    batches = learner.batches(config, worker)
    staging = Staging(flat)
    # One gradient before the run begins, so that no first one pays for what a library sets up. Nothing of it stays.
    gradient_of([flat.weights], flat.buffers.clone(), batches.take(0))
    rule = config.strategy.pull_rule(config.cluster.shards)
    if rule is None:
        links = Links(worker, staging, config.cluster.shards, config.strategy.interrupts)
    else:
        links = PulledLinks(worker, staging, config.cluster.shards, rule)
    about = {"size": flat.weights.numel(), "num_buffers": flat.buffers.numel(), "num_train": learner.num_train}
    with closing(links):
        links.connect(addresses, secret, tls, about, config.live.leave_s)
        iteration = links.first_iteration()
        if iteration is not None:
            absolute = config.live.pace == "absolute"
            pace = DelayInjector(config.cluster, config.scenario, config.seed, worker, absolute, iteration)
            _push_gradients(worker, links, staging, learner, batches, pace, iteration)


def _push_gradients(
    worker: int,
    links: Links,
    staging: Staging,
    learner: Learner,
    batches: WorkerBatches,
    pace: DelayInjector,
    iteration: int,
) -> None:
    """One after another, from this iteration on, until the run is over."""
    flat, gradient_of = learner.flat, learner.gradient
    cut = wasted = 0  # gradients that came to nothing since the last push
    while links.await_blocks(pace):
        staging.to_device()
        started = time.monotonic()
        loss, _, _ = gradient_of([flat.weights], flat.buffers, batches.take(iteration))
        staging.from_device()
        if links.is_interrupted():
            wasted += 1
            continue
        slow_s, delay_s = pace.compute(time.monotonic() - started)
        if not links.wait(slow_s + delay_s):
            return
        if links.interrupted:
            cut += 1
            continue
        computed = time.monotonic()
        frame = Frame(
            Kind.PUSH,
            worker,
            iteration,
            cut=cut,
            wasted=wasted,
            loss=loss,
            started_at=links.clock(started),
            computed_at=links.clock(computed),
            slow_s=slow_s,
            delay_s=delay_s,
        )
        if not links.push(pace, frame, computed):
            cut += 1
            continue
        iteration += 1
        cut = wasted = 0
