"""A worker's process: gradients at the weights it was granted, pushed to every shard, each answered with its block.

One thread computes, sends and receives; whatever it waits for, a message of a shard ends the waiting.
"""

import select
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from syncline.assembly import build_flat, build_share, load_dataset, pick_device, shape_of
from syncline.config import RunConfig
from syncline.datasets.streams import Purpose, stream
from syncline.learning.flat import FlatModule
from syncline.learning.server import blocks
from syncline.learning.task import Batches, GradientFunction
from syncline.live.server import CLOCK_QUESTIONS, view
from syncline.live.transport import Socket, Tls, WireError
from syncline.live.wire import Frame, Kind, Reader, connect, receive_json, send, send_json
from syncline.timing.cluster import Pace


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
class _Link:
    """The connection to one shard, and what last came over it."""

    shard: int
    sock: Socket
    reader: Reader
    offset_s: float  # the shard's monotonic clock minus ours
    weights: Tensor  # its block of the staged weights
    gradient: Tensor
    buffers: Tensor  # empty but for the first shard
    block: Frame | None = None  # the answer to the last push; None while it has not come
    arrived: float = 0.0  # when it did, monotonic
    pull_delay_s: float = 0.0
    is_open: bool = True  # the run goes on at this shard


class Links:
    """The connections to all shards."""

    def __init__(self, worker: int, staging: Staging, num_shards: int) -> None:
        self._worker = worker
        self._staging = staging
        self._num_shards = num_shards
        self._links: list[_Link] = []
        self._zero_s: float | None = None  # the run's beginning on our monotonic clock, by the first shard's word

    def connect(self, addresses: Sequence[str], secret: bytes, tls: Tls | None, about: dict[str, int]) -> None:
        """Meet every shard: who we are, and how far its clock is from ours (half a round trip is its error)."""
        staging = self._staging
        for shard, (address, block) in enumerate(
            zip(addresses, blocks(staging.weights.numel(), self._num_shards), strict=True)
        ):
            sock = connect(address, secret, tls)
            send_json(sock, {"worker": self._worker, **about})
            buffers = staging.buffers if shard == 0 else staging.buffers[:0]
            self._links.append(
                _Link(
                    shard, sock, Reader(sock), _offset(sock), staging.weights[block], staging.gradient[block], buffers
                )
            )

    @property
    def open(self) -> list[_Link]:
        return [link for link in self._links if link.is_open]

    def clock(self, monotonic: float) -> float:
        """The run's seconds at this moment of our monotonic clock."""
        assert self._zero_s is not None
        return monotonic - self._zero_s

    def wait(self, seconds: float) -> bool:
        """Sleep so long, or until a shard says something; what it says is received. False if the run is over."""
        ends = time.monotonic() + seconds
        while (left := ends - time.monotonic()) > 0 and self.open:
            self._receive_ready(left)
        return bool(self.open)

    def await_blocks(self, pace: Pace | None) -> bool:
        """Wait until every shard has answered, and the injected delays of the answers are over.

        Returns:
            False if the run is over at every shard.
        """
        while any(link.block is None for link in self.open):
            self._receive_ready(None)
        if pace is not None:
            for link in self.open:
                link.pull_delay_s = pace.pull(link.shard)
            delayed = [link.arrived + link.pull_delay_s for link in self.open if link.pull_delay_s]
            if delayed:
                self.wait(max(delayed) - time.monotonic())
        return bool(self.open)

    def push(self, pace: Pace, frame: Frame, computed: float) -> None:
        """Send the staged gradient to every shard, each at its time."""
        delays = {link.shard: pace.push(link.shard) for link in self._links}
        for link in sorted(self.open, key=lambda link: delays[link.shard]):
            if delays[link.shard]:
                self.wait(computed + delays[link.shard] - time.monotonic())
            if not link.is_open:
                continue
            assert link.block is not None
            header = replace(
                frame,
                version=link.block.version,
                push_delay_s=delays[link.shard],
                pulled_at=self.clock(link.arrived),
                pull_delay_s=link.pull_delay_s,
            )
            link.block = None
            try:
                send(link.sock, header, [view(link.gradient), view(link.buffers)])
            except OSError as error:
                raise ShardGone(f"shard {link.shard}: {error}") from None

    def _receive_ready(self, timeout: float | None) -> None:
        links = self.open
        ready = [link for link in links if link.reader.pending]
        if not ready:
            readable, _, _ = select.select([link.sock for link in links], [], [], timeout)
            ready = [link for link in links if link.sock in readable]
        for link in ready:
            try:
                self._receive(link)
            except OSError as error:
                raise ShardGone(f"shard {link.shard}: {error}") from None

    def _receive(self, link: _Link) -> None:
        frame = link.reader.next()
        if frame.kind is Kind.STOP:
            link.is_open = False
        elif frame.kind is Kind.BLOCK and link.block is None:
            link.reader.payload(frame, [view(link.weights), view(link.buffers)])
            link.block, link.arrived = frame, time.monotonic()
            if self._zero_s is None and link.shard == 0:
                self._zero_s = frame.started_at - link.offset_s
        else:
            raise WireError(f"an unexpected {frame.kind.name}")


def _offset(sock: Socket) -> float:
    """The peer's monotonic clock minus ours, from the quickest of a few questions."""
    best = float("inf"), 0.0
    for _ in range(CLOCK_QUESTIONS):
        asked = time.monotonic()
        send_json(sock, {})
        theirs = receive_json(sock)["now"]
        now = time.monotonic()
        best = min(best, (now - asked, theirs - (asked + now) / 2))
    return best[1]


def work(config: RunConfig, worker: int, addresses: Sequence[str], secret: bytes, tls: Tls | None) -> None:
    """Be this worker until the run is over.

    Raises:
        ShardGone: a connection ended before.
    """
    torch.set_num_threads(config.threads)
    device = pick_device(config, worker)
    dataset = load_dataset(config)
    flat = build_flat(config, shape_of(dataset), device)
    num_train = len(dataset.train_labels)
    share = build_share(config, worker, num_train)
    batches = Batches(dataset, device, config.dataset.augment)
    gradient_of = GradientFunction(flat)
    staging = Staging(flat)
    # One gradient before the run begins, so that no first one pays for what a library sets up. Nothing of it stays.
    gradient_of([flat.weights], flat.buffers.clone(), batches.take(share.batch(0), None))
    links = Links(worker, staging, config.cluster.shards)
    about = {"size": flat.weights.numel(), "num_buffers": flat.buffers.numel(), "num_train": num_train}
    links.connect(addresses, secret, tls, about)
    if not links.await_blocks(None):
        return
    iteration = max(link.block.iteration for link in links.open if link.block is not None)
    pace = Pace(config.cluster, config.scenario, config.seed, worker, config.runner.pace == "absolute", iteration)
    while links.await_blocks(pace):
        staging.to_device()
        started = time.monotonic()
        generator = stream(Purpose.AUGMENT, worker, iteration, config.seed) if batches.augment else None
        batch = batches.take(share.batch(iteration), generator)
        loss, _, _ = gradient_of([flat.weights], flat.buffers, batch)
        staging.from_device()
        slow_s, delay_s = pace.compute(time.monotonic() - started)
        if not links.wait(slow_s + delay_s):
            return
        computed = time.monotonic()
        frame = Frame(
            Kind.PUSH,
            worker,
            iteration,
            loss=loss,
            started_at=links.clock(started),
            computed_at=links.clock(computed),
            slow_s=slow_s,
            delay_s=delay_s,
        )
        links.push(pace, frame, computed)
        iteration += 1
