"""A worker's connections to its shards.

One thread computes and receives; whatever it waits for, a message of a shard wakes it. It sends to several shards at
once, and receives from several what has arrived: a shard that is slow, or busy with other workers, delays no other.
It waits for an answer of every shard, or a pull rule decides when it continues, and with which blocks.
"""

import socket
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial

import torch
from torch import Tensor

from syncline.learning.compression import Compression
from syncline.learning.flat import FlatModule
from syncline.live.wire.clock import Clock, measure_clock
from syncline.live.wire.frames import DIRECT_BYTES, Header, Kind, Reader, byte_view, pack_report, send, send_json
from syncline.live.wire.handshake import connect
from syncline.live.wire.sockets import WireError, wait_readable
from syncline.server.report import PushReport
from syncline.strategies.protocol import PullRule
from syncline.timing.cluster import DelayInjector


class ShardLost(ConnectionError):
    """A shard closed the connection: it died, or has dropped this worker."""


class Staging:
    """The flat vectors in host memory: pinned copies of them on a GPU; on a CPU the module's own, unless it is `apart`.

    Args:
        apart: the module's weights change between blocks, by local steps.
    """

    def __init__(self, flat: FlatModule, apart: bool = False) -> None:
        self._flat = flat
        self._on_gpu = flat.weights.is_cuda
        self.is_apart = apart or self._on_gpu
        self.weights, self.gradient, self.buffers = (
            torch.empty_like(tensor, device="cpu", pin_memory=self._on_gpu) if self.is_apart else tensor
            for tensor in (flat.weights, flat.gradient, flat.buffers)
        )

    def to_device(self) -> None:
        if self.is_apart:
            self._flat.weights.copy_(self.weights, non_blocking=True)
            self._flat.buffers.copy_(self.buffers, non_blocking=True)

    def from_device(self) -> None:
        if self.is_apart:
            self.gradient.copy_(self._flat.gradient, non_blocking=True)
            self.buffers.copy_(self._flat.buffers, non_blocking=True)
        if self._on_gpu:
            torch.cuda.synchronize(self._flat.weights.device)


@dataclass(slots=True)
class ArrivedBlock:
    """A block that has arrived and is not in use, in memory of its own."""

    version: int
    weights: Tensor
    buffers: Tensor
    arrived: float  # monotonic
    ready: float | None = None  # when its injected delay is over; None while the delay is not drawn
    is_announced: bool = False  # to the pull rule


class Differences:
    """The blocks of a shard that sends how they have changed, compressed.

    Args:
        compression: of the changes.
        known: where the worker keeps the last block [n].
    """

    def __init__(self, compression: Compression, known: Tensor) -> None:
        self._compression, self._known = compression, known
        self._change = torch.empty_like(known)
        self.incoming = torch.empty(compression.size(known.numel()), dtype=torch.uint8)  # memory for the next one

    def first(self, weights: Tensor) -> None:
        """This block came as it is."""
        self._known.copy_(weights)

    def add(self, weights: Tensor) -> None:
        """`incoming` is complete: write the block to `weights`. Raises WireError: it stands for no change."""
        try:
            self._compression.decode(self.incoming, self._change)
        except ValueError as error:
            raise WireError(f"a compressed BLOCK: {error}") from None
        self._known.add_(self._change)
        weights.copy_(self._known)


@dataclass(slots=True)
class Link:
    """The connection to one shard, and what last came over it."""

    shard: int
    sock: socket.socket
    reader: Reader
    clock: Clock  # the shard's
    weights: Tensor  # its block of the staged weights
    block: slice  # of the flat vector
    gradient: Tensor  # of what is pushed, as it goes over the wire
    buffers: Tensor  # which the forward pass changes; empty but for the first shard
    pushed_buffers: Tensor  # of what is pushed
    received_buffers: Tensor  # those that came with the block in use
    last: Header | None = None  # of the block in use
    incoming: Header | None = None  # of a block of which a part has arrived
    destination: tuple[Tensor, Tensor] | None = None  # of that block: weights and buffers
    pulls: Differences | None = None  # of the blocks after the first; None: they come as they are
    is_answered: bool = False  # since the last push
    arrived: float = 0.0  # when the answer was complete, monotonic
    pull_delay_s: float = 0.0
    is_open: bool = True  # the run goes on at this shard
    saved: Header | None = None  # a checkpoint was written there, and the worker's part is due
    iteration: int = 0  # earlier pushes it has received, though others may not
    waiting: list[ArrivedBlock] = field(default_factory=list)  # in order of arrival; only with a pull rule
    free: list[tuple[Tensor, Tensor]] = field(default_factory=list)  # memory for further blocks
    sender: ThreadPoolExecutor = field(default_factory=partial(ThreadPoolExecutor, 1, "sender"))  # starts when needed


class Links:
    """The connections to all shards.

    Args:
        blocks: of the shards, which cover the flat vector.
        interrupts: a block may arrive while the worker computes, whose gradient is stale then.
        rule: under which blocks arrive at any time, in memory of their own, and those in use are chosen when the worker
            continues; None: it waits for one answer of each shard.
        pulls: how the changes of blocks are compressed; None: blocks come as they are.
        overlap: a push, which is compressed, is sent while the worker goes on.
        spin_s: as in `wait_readable`.

    Attributes:
        resends: when the run resumes, a push that only some shards have received is made for the others. A pull rule
            counts what each push was followed by.
        on_save: called when a checkpoint was written, with its number and the worker's next push in it.
    """

    def __init__(
        self,
        worker: int,
        staging: Staging,
        blocks: Sequence[slice],
        interrupts: bool = False,
        rule: PullRule | None = None,
        pulls: Compression | None = None,
        overlap: bool = False,
        spin_s: float = 0.0,
    ) -> None:
        self.on_save: Callable[[float, int], None] = lambda checkpoint, iteration: None
        self.resends = rule is None
        self.iteration = 0  # number of the next push
        self.interrupted = False  # a block has arrived that is newer than the one at which the worker computes
        self.worker = worker
        self._staging = staging
        self._blocks, self._num_shards = blocks, len(blocks)
        self._interrupts, self._pulls, self._spin_s = interrupts and rule is None, pulls, spin_s
        self._rule, self._overlap = rule, overlap
        self._sending: list[tuple[Link, Future[None]]] = []  # the last push
        self._continues_at: float | None = None  # monotonic; what the rule last said
        self._versions = torch.zeros(len(blocks), dtype=torch.int64)  # of the blocks in use, with a rule
        self._links: list[Link] = []
        self._zero_s: float | None = None  # start of the run on our monotonic clock, as the first shard says

    def connect(
        self, addresses: Sequence[str], secret: bytes, about: dict[str, int], dead_s: float | None = None
    ) -> None:
        """Connect to every shard, say who we are, and synchronise the clocks. Raises ShardLost if one is not there."""
        staging = self._staging
        for shard, (address, block) in enumerate(zip(addresses, self._blocks, strict=True)):
            try:
                sock = connect(address, secret, dead_s)
                send_json(sock, {"worker": self.worker, **about})
                clock = measure_clock(sock)
            except OSError as error:
                raise ShardLost(f"shard {shard} at {address}: {error.strerror or error}") from None
            buffers = staging.buffers if shard == 0 else staging.buffers[:0]
            weights, gradient = staging.weights[block], staging.gradient[block]
            link = Link(shard, sock, Reader(sock), clock, weights, block, gradient, buffers, buffers, buffers.clone())
            if self._pulls is not None:
                # With a rule not the block in use: several may arrive before one is used.
                link.pulls = Differences(self._pulls, weights if self._rule is None else torch.empty_like(weights))
            self._links.append(link)

    def close(self) -> None:
        """End all connections."""
        for link in self._links:
            with suppress(OSError):
                link.sock.shutdown(socket.SHUT_RDWR)
            link.sender.shutdown()

    @property
    def open(self) -> list[Link]:
        return [link for link in self._links if link.is_open]

    @property
    def _due(self) -> list[Link]:
        """The open links that the next push is for; only those of shards that lack it, when a run has resumed."""
        return [link for link in self.open if link.iteration <= self.iteration]

    def clock(self, monotonic: float) -> float:
        """The run's seconds at this moment of our monotonic clock."""
        assert self._zero_s is not None
        return monotonic - self._zero_s

    def first_iteration(self) -> int | None:
        """Wait for the first block of every shard. Returns the iteration to begin with; None: the run is over.

        If the run has resumed, that is the first one that a shard has not received; the others are not sent it again.
        With a rule, a worker that all shards hold has pushed at their blocks, and continues with the next ones.
        """
        while any(link.last is None for link in self.open):
            self._receive_ready(None)
        iterations = {link.shard: link.last.iteration for link in self.open if link.last is not None}
        if not iterations:
            return None
        self.iteration = max(iterations.values())
        if self.resumes and self.resends:
            self.iteration = min(iterations.values())
            for link in self.open:
                link.iteration = iterations[link.shard]
        elif not self.resends and all(link.last is not None and link.last.kind is Kind.HELD for link in self.open):
            for link in self.open:
                held = link.waiting.pop(0)
                link.free.append((held.weights, held.buffers))
        return self.iteration

    @property
    def resumes(self) -> bool:
        """The worker continues with what it kept for the checkpoint; known after `first_iteration`."""
        return any(link.last.resumes for link in self._links if link.last is not None)

    def wait(self, seconds: float) -> bool:
        """Receive for so long, or until an interrupt. False if the run is over."""
        ends = time.monotonic() + seconds
        while (left := ends - time.monotonic()) > 0 and self.open and not self.interrupted:
            self._receive_ready(left)
        return bool(self.open)

    def poll(self) -> None:
        """Receive what has arrived."""
        while self.open and self._receive_ready(0.0):
            pass

    def await_blocks(self, delays: DelayInjector) -> bool:
        """Wait until the worker may continue with the blocks in use, after their delays. False if the run is over."""
        if self._rule is not None:
            return self._await_rule(self._rule, delays)
        while True:
            while any(not link.is_answered for link in self._due):
                self._receive_ready(None)
            for link in self.open:
                link.pull_delay_s = delays.pull(link.shard)
            delayed = [link.arrived + link.pull_delay_s for link in self._due if link.pull_delay_s]
            self.interrupted = False
            if delayed:
                self.wait(max(delayed) - time.monotonic())
            if not self.is_interrupted():  # a gradient at these blocks would be stale already
                break
        self.reset_buffers()
        return bool(self.open)

    def _await_rule(self, rule: PullRule, delays: DelayInjector) -> bool:
        """As `await_blocks`, until the rule lets the worker continue."""
        while self.open:
            self._announce(rule, delays)
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
        for shard in rule.start():
            self._use_newest(self._links[shard])
        self.reset_buffers()
        self._continues_at = None
        return True

    def _announce(self, rule: PullRule, delays: DelayInjector) -> None:
        """Notify the rule of the blocks whose injected delay is over."""
        now = time.monotonic()
        for link in self._links:
            for block in link.waiting:
                if block.ready is None:
                    block.ready = block.arrived + delays.pull(link.shard)
                if not block.is_announced and block.ready <= now:
                    block.is_announced = True
                    self._continues_at = rule.arrived(now, link.shard, block.version)

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

    def is_interrupted(self) -> bool:
        """What the worker has computed is stale."""
        if self._interrupts:
            self.poll()
        return self.interrupted

    def compressed(self, parts: Sequence[Tensor]) -> None:
        """The next push sends these uint8 bytes, a part to each shard, and the buffers as they are."""
        for link, part in zip(self._links, parts, strict=True):
            link.gradient, link.pushed_buffers = part, link.buffers.clone()

    def push(self, delays: DelayInjector, report: PushReport, computed: float) -> bool:
        """Send what is staged, or compressed, to every shard, each after its delay. False if an interrupt cancelled it.

        Args:
            report: what is the same for all shards.
            computed: monotonic time at which the gradient was computed.
        """
        if not self._interrupts:  # else a block might arrive at which the gradient was not computed
            self.poll()  # a shard may have ended, and the rule's tag may depend on what has arrived
        if self._rule is None:
            return self._push(delays, report, computed)
        self._announce(self._rule, delays)
        is_sent = self._push(delays, report, computed)
        self._continues_at = self._rule.pushed(time.monotonic())
        return is_sent

    def _push(self, delays: DelayInjector, report: PushReport, computed: float) -> bool:
        delays_s = {link.shard: delays.push(link.shard) for link in self._links}
        self._await_sent()
        try:
            for link in sorted(self._push_order(), key=lambda link: delays_s[link.shard]):
                if delays_s[link.shard]:
                    self.wait(computed + delays_s[link.shard] - time.monotonic())
                    if self.interrupted:
                        return False
                if not link.is_open or link.iteration > report.iteration:
                    continue
                parts = [byte_view(link.gradient), *self._after_gradient(link, report, delays_s[link.shard])]
                link.is_answered = False
                if self._overlap or (self._num_shards > 1 and link.gradient.nbytes > DIRECT_BYTES):
                    self._sending.append((link, link.sender.submit(send, link.sock, Header(Kind.PUSH), parts)))
                else:
                    with _naming(link):
                        send(link.sock, Header(Kind.PUSH), parts)
        finally:
            if not self._overlap:  # else the next gradient has memory of its own
                self._await_sent()
        self.iteration = report.iteration + 1
        return True

    def _await_sent(self) -> None:
        sending, self._sending = self._sending, []
        for link, sent in sending:
            with _naming(link):
                sent.result()

    def _after_gradient(self, link: Link, report: PushReport, delay_s: float) -> list[memoryview]:
        """What a push to this shard has after the gradient."""
        assert link.last is not None
        version, rule = link.last.version, self._rule
        own = replace(
            report,
            version=version,
            tag=version if rule is None else rule.tag,
            pulled_at=self.clock(link.arrived),
            pull_delay_s=link.pull_delay_s,
            push_delay_s=delay_s,
        )
        versions = [] if rule is None else [byte_view(self._versions)]
        return [byte_view(link.pushed_buffers), *versions, memoryview(pack_report(own))]

    def reset_buffers(self) -> None:
        """The next gradient begins with the buffers of the block in use, even if it is not the first one at it."""
        for link in self._links:
            link.buffers.copy_(link.received_buffers)

    def _push_order(self) -> list[Link]:
        """The open links, in the order in which they are pushed to.

        With a rule another one is the first each time: else one block would always be the last, and never be used.
        """
        first = 0 if self._rule is None else self._rule.tag % self._num_shards
        return sorted(self.open, key=lambda link: (link.shard - first) % self._num_shards)

    def _receive_ready(self, timeout: float | None) -> bool:
        """Receive from every shard that has sent something. False if none has, within so many seconds.

        While a push is made for some shards only, nothing is received from the others: it would be their next block.
        """
        links = self._due or self.open
        ready = [link for link in links if link.reader.pending]
        if not ready:
            readable = wait_readable([link.sock for link in links], timeout, self._spin_s)
            ready = [link for link in links if link.sock in readable]
        for link in ready:
            with _naming(link):
                self._receive(link)
            if (saved := link.saved) is not None:  # an error of the disk is none of the connection
                link.saved = None
                self.on_save(saved.checkpoint, saved.iteration)
        return bool(ready)

    def _receive(self, link: Link) -> None:
        """Receive a frame, or more of an incoming block."""
        if link.incoming is not None:
            is_complete = link.reader.more()
        else:
            header = link.reader.next()
            if header.kind is Kind.STOP:
                link.is_open = False
                if self._rule is not None:
                    self._continues_at = self._rule.closed(time.monotonic(), link.shard)
                return
            if header.kind is Kind.SAVE:
                link.saved = header
                return
            if header.kind is Kind.REPEAT and link.last is not None and not link.is_answered:
                link.is_answered, link.arrived = True, time.monotonic()
                return
            if header.kind is not Kind.BLOCK and not (header.kind is Kind.HELD and link.last is None):
                raise WireError(f"an unexpected {header.kind.name}")
            if self._zero_s is None and link.shard == 0:
                self._zero_s = link.clock.to_local(header.zero_s)
            link.incoming, link.destination = header, self._destination(link)
            weights, buffers = link.destination
            coming = weights if link.pulls is None or link.last is None else link.pulls.incoming
            is_complete = link.reader.begin(header, [byte_view(coming), byte_view(buffers)])
        if is_complete:
            header, link.incoming = link.incoming, None
            if link.pulls is not None and link.destination is not None:
                complete = link.pulls.first if link.last is None else link.pulls.add
                complete(link.destination[0])
            self._arrived(link, header)

    def _destination(self, link: Link) -> tuple[Tensor, Tensor]:
        """Weights and buffers for an incoming block."""
        if self._rule is not None:
            return link.free.pop() if link.free else (link.weights.clone(), link.received_buffers.clone())
        if link.is_answered:
            if not self._interrupts:
                raise WireError("an unexpected BLOCK")
            self.interrupted, link.is_answered = True, False
        return link.weights, link.received_buffers

    def _arrived(self, link: Link, header: Header) -> None:
        """A block is complete."""
        if self._rule is None:
            link.last, link.is_answered, link.arrived = header, header.kind is Kind.BLOCK, time.monotonic()
            return
        assert link.destination is not None
        link.waiting.append(ArrivedBlock(header.version, *link.destination, time.monotonic()))
        link.last = link.last or header


@contextmanager
def _naming(link: Link) -> Iterator[None]:
    """Any error of this connection means that its shard is lost."""
    try:
        yield
    except OSError as error:
        raise ShardLost(f"shard {link.shard}: {error}") from None
