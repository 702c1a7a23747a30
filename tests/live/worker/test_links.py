"""A worker's connections to real acceptors: interrupts, repeats, ends; what a writer sends."""

import errno
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from fake_shards import LONG_S, NONE, SECRET, SIZE, Delays, FakeShard, at_once, linked, push, soon, staging
from leaks import nothing_left, wait_until

from syncline.assembly.network import build_flat
from syncline.assembly.problem import build_problem
from syncline.config import DigitsConfig, LocalConfig, ModelConfig, RunConfig
from syncline.learning.gradient import GradientFunction
from syncline.learning.layout import blocks
from syncline.learning.parameters import Version
from syncline.live.node.control import RunContext
from syncline.live.shard.connections import Disconnected, Outbox
from syncline.live.shard.server import ShardServer
from syncline.live.shard.watchdog import Watchdog
from syncline.live.wire.clock import RunClock
from syncline.live.wire.frames import Header, Kind, send
from syncline.live.wire.sockets import wait_readable
from syncline.live.worker import trainer
from syncline.live.worker.links import Links, ShardLost
from syncline.live.worker.trainer import run_worker
from syncline.strategies.k_sync import KSyncOptions
from syncline.timing.cluster import ClusterConfig

# The outbox of a writer


def versions(count: int) -> list[Version]:
    return [Version(torch.zeros(1), torch.zeros(0)) for _ in range(count)]


def test_where_each_block_is_a_difference_all_are_kept():
    outbox, (first, second, _) = Outbox(keeps_all=True), versions(3)
    assert outbox.put(Header(Kind.BLOCK, version=1), first) is None
    assert outbox.put(Header(Kind.BLOCK, version=2), second) is None
    assert [entry[1] for entry in (outbox.get(), outbox.get()) if entry] == [first, second]


def test_other_frames_keep_their_order_among_blocks():
    """A repeat belongs to the block before it, which must not be replaced by a later one."""
    outbox, (first, second, third) = Outbox(keeps_all=False), versions(3)
    assert outbox.put(Header(Kind.BLOCK, version=1), first) is None
    assert outbox.put(Header(Kind.REPEAT), None) is None
    assert outbox.put(Header(Kind.BLOCK, version=2), second) is None
    assert outbox.put(Header(Kind.BLOCK, version=3), third) is second
    assert outbox.put(Header(Kind.STOP), None) is None
    outbox.close()
    got = []
    while (entry := outbox.get()) is not None:
        got.append((entry[0].kind, entry[0].version))
    assert got == [(Kind.BLOCK, 1), (Kind.REPEAT, 0), (Kind.BLOCK, 3), (Kind.STOP, 0)]


LARGE = 1 << 21  # elements, more than a socket buffers


@contextmanager
def blocked() -> Iterator[tuple[FakeShard, socket.socket]]:
    """A shard, and a worker that reads nothing."""
    with nothing_left():
        shard = FakeShard(LARGE, 0)
        weights = torch.zeros(LARGE)
        place = SimpleNamespace(weights=weights, gradient=weights, buffers=torch.zeros(0))
        links = Links(0, place, [slice(0, LARGE)])  # type: ignore[arg-type]
        links.connect([shard.address], SECRET, {})
        shard.accept()
        try:
            yield shard, links._links[0].sock
        finally:
            links._links[0].sock.close()
            shard.close()


def test_a_worker_that_has_not_read_the_last_block_is_as_silent_as_before():
    """A hung worker that is interrupted repeatedly must not count as alive; one that computes must."""
    with blocked() as (shard, _):
        state, watchdog = Version(torch.zeros(LARGE), torch.zeros(0)), Watchdog(1.0, 1.0)
        server = ShardServer.__new__(ShardServer)
        pinned = SimpleNamespace(pin=lambda: state, unpin=lambda version: None)
        server._parameters, server._connections = pinned, {0: shard.connection}  # type: ignore[assignment]
        server._clock, server._watchdog = RunClock(), watchdog
        server._shard = SimpleNamespace(version=1, iterations=[0])  # type: ignore[assignment]
        server._grant(0, is_busy=True, is_due=True)
        (first, what), words = watchdog.last_event[0], "granted"
        assert what == words
        assert wait_until(lambda: not shard.connection._outbox._entries)
        server._grant(0, is_busy=True, is_due=True)
        second = watchdog.last_event[0][0]
        assert second > first, "the first block is being sent: the worker may be alive"
        for _ in range(2):
            server._grant(0, is_busy=True, is_due=True)
            assert watchdog.last_event[0][0] == second


def test_a_worker_that_ends_with_an_unread_block_has_closed_the_connection():
    with blocked() as (shard, sock):
        shard.connection.post(Header(Kind.BLOCK), Version(torch.zeros(LARGE), torch.zeros(0)), is_busy=True)
        assert sock.recv(1, socket.MSG_PEEK), "it has arrived"
        sock.close()
        messages = [shard.inbox.get(timeout=5) for _ in range(2)]
        assert {message.why for message in messages if isinstance(message, Disconnected)} == {
            "the connection was closed"
        }


# A worker that waits for one answer of each shard


@contextmanager
def computing(num_shards: int = 1, size: int = SIZE, interrupts: bool = False) -> Iterator[tuple[Any, ...]]:
    """A worker that computes at the first blocks: its links, their staging, and the shards."""
    place = staging(num_shards, size)
    links = Links(0, place, blocks(place.weights.numel(), num_shards), interrupts=interrupts)
    with linked(links, num_shards, size) as shards:
        assert links.await_blocks(NONE)
        yield links, place, *shards


def test_an_interrupt_cancels_a_long_delay_at_once():
    with computing(interrupts=True) as (links, place, shard):
        soon(lambda: shard.block(1))
        with at_once():
            assert links.wait(LONG_S)
        assert links.interrupted
        with at_once():
            assert links.await_blocks(NONE)
        assert not links.interrupted
        assert set(place.weights.tolist()) == set(place.buffers.tolist()) == {1.0}
        assert push(links)
        report = shard.pushed().report
        assert (report.version, report.tag, report.iteration) == (1, 1, 3)


def test_an_interrupt_during_the_delay_of_a_push_cancels_it():
    with computing(interrupts=True) as (links, _, shard):
        soon(lambda: shard.block(1))
        with at_once():
            assert not push(links, Delays(push=LONG_S))
        with at_once():
            assert links.await_blocks(NONE)
        assert shard.received_nothing()


def test_an_interrupt_during_the_delay_of_a_block_ends_it_and_the_newer_block_has_a_delay_of_its_own():
    place = staging()
    links = Links(0, place, blocks(place.weights.numel(), 1), interrupts=True)
    with linked(links) as (shard,):
        begun = time.monotonic()
        soon(lambda: shard.block(1))
        assert links.await_blocks(Delays({0: [LONG_S, 0.3]}))
        assert 0.1 + 0.3 <= time.monotonic() - begun < LONG_S / 2
        assert place.weights[0] == 1.0
        push(links)
        assert shard.pushed().report.pull_delay_s == 0.3


def test_half_a_block_is_an_interrupt_and_nothing_is_computed_before_the_other_half_is_there():
    with computing(interrupts=True) as (links, place, shard):
        rest = shard.half_a_block(1)
        assert wait_until(links.is_interrupted)
        soon(rest, 0.3)
        begun = time.monotonic()
        assert links.await_blocks(NONE)
        assert time.monotonic() - begun > 0.2
        assert set(place.weights.tolist()) == set(place.buffers.tolist()) == {1.0}


def test_a_push_is_of_the_block_at_which_it_was_computed_though_a_newer_one_has_come():
    with computing(interrupts=True) as (links, _, shard):
        assert not links.is_interrupted()
        shard.block(1)
        assert wait_readable([links.open[0].sock], 5.0, 0.0)
        time.sleep(0.1)
        push(links)
        assert shard.pushed().report.version == 0


def test_blocks_that_cross_a_push_are_its_answer():
    """Two updates were applied before the stale push arrived; the worker continues at the newest."""
    with computing(interrupts=True) as (links, place, shard):
        shard.block(1)
        assert push(links), "it has not polled"
        assert shard.pushed().report.version == 0
        shard.block(2)
        assert wait_until(lambda: links.await_blocks(NONE) and place.weights[0] == 2.0)
        assert not links.interrupted


def test_after_a_repeat_the_worker_continues_at_the_version_it_has():
    with computing(interrupts=True) as (links, place, shard):
        place.buffers[:] = 9.0  # as the forward pass leaves them
        push(links)
        assert set(shard.pushed().gradient.buffers.tolist()) == {9.0}
        shard.send(Kind.REPEAT)
        with at_once():
            assert links.await_blocks(NONE)
        assert set(place.buffers.tolist()) == {0.0}, "those of the version, as at first"
        push(links, iteration=4)
        assert (shard.pushed().report.version, place.weights[0]) == (0, 0.0)
        shard.send(Kind.REPEAT)
        links.await_blocks(NONE)
        shard.send(Kind.REPEAT)
        with pytest.raises(ShardLost, match="unexpected REPEAT"):
            links.wait(1.0)


def test_without_interrupts_an_unexpected_block_is_an_error():
    with computing() as (links, _, shard):
        shard.block(1)
        with pytest.raises(ShardLost, match="unexpected BLOCK"):
            links.wait(1.0)


def test_the_end_of_the_run_ends_a_long_delay():
    with computing() as (links, _, shard):
        soon(lambda: shard.send(Kind.STOP))
        with at_once():
            assert not links.wait(LONG_S)
            assert not links.await_blocks(NONE)


def test_a_worker_s_part_of_a_checkpoint_that_cannot_be_written_is_no_loss_of_the_shard():
    def save(checkpoint: float, iteration: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with computing() as (links, _, shard):
        links.on_save = save
        shard.send(Kind.SAVE)
        with pytest.raises(OSError, match="No space left") as raised:
            links.wait(1.0)
        assert not isinstance(raised.value, ShardLost)


def test_a_shard_that_is_slow_to_send_delays_no_other():
    with computing(2) as (links, place, first, second):
        push(links)
        rest = first.half_a_block(1)
        assert wait_until(lambda: links.poll() or links._links[0].incoming is not None)
        second.block(1)
        assert wait_until(lambda: links.poll() or links._links[1].is_answered)
        assert not links._links[0].is_answered
        assert place.weights[SIZE:].tolist() == [1.0] * SIZE
        soon(rest)
        assert links.await_blocks(NONE)
        assert set(place.weights.tolist()) == {1.0}


@contextmanager
def nothing_read_by(shard: FakeShard) -> Iterator[None]:
    """No push is received before the end."""
    may_read = threading.Event()
    pool = shard.connection.pool
    take, pool.take = pool.take, lambda: may_read.wait() and take()  # type: ignore[method-assign]
    try:
        yield
    finally:
        may_read.set()


def test_a_shard_that_is_slow_to_receive_delays_no_other():
    with computing(2, LARGE) as (links, _, first, second):
        thread = threading.Thread(target=push, args=(links,))
        with nothing_read_by(first):
            thread.start()
            assert second.pushed().report.version == 0
            assert thread.is_alive(), "no socket holds what the other one does not read"
        assert first.pushed().report.version == 0
        thread.join(5)
        assert not thread.is_alive()


def test_a_shard_that_dies_during_a_push_is_named():
    with computing(2, LARGE) as (links, _, first, second), nothing_read_by(first):
        soon(first.connection.close, 0.3)
        with pytest.raises(ShardLost, match="shard 0"):
            push(links)
        assert second.pushed().report.version == 0


def test_a_worker_continues_with_the_shards_that_have_not_ended():
    with computing(2) as (links, place, first, second):
        push(links)
        assert (first.pushed().report.version, second.pushed().report.version) == (0, 0)
        first.send(Kind.STOP)
        second.block(1)
        with at_once():
            assert links.await_blocks(NONE)
        assert place.weights.tolist() == [0.0] * SIZE + [1.0] * SIZE
        push(links)
        assert second.pushed().report.version == 1
        assert first.received_nothing()


def test_a_shard_that_has_ended_while_the_worker_computed_is_not_lost():
    """It does not wait for a long gradient; the other one still needs it."""
    with computing(2) as (links, _, first, second):
        send(first.connection.sock, Header(Kind.STOP))
        first.connection.close()
        push(links)
        assert second.pushed().report.iteration == 3
        assert [link.shard for link in links.open] == [1]


@pytest.mark.parametrize("kind", [Kind.HELD, Kind.BLOCK])
def test_a_resumed_worker_first_pushes_to_the_shards_that_lack_it_what_the_others_have(kind):
    """The first shard has received push 3 and holds the worker, or has granted it."""
    place = staging(2)
    links = Links(0, place, blocks(place.weights.numel(), 2))
    with linked(links, 2, resumed=[(kind, 4), (Kind.BLOCK, 3)]) as (first, second):
        with at_once():
            assert links.await_blocks(NONE)
        if kind is Kind.HELD:
            first.block(7, iteration=4)
            links.wait(0.2)
        assert place.weights.tolist() == [0.0] * 2 * SIZE, "a block that is for the next push is not read yet"
        assert push(links, iteration=3)
        assert second.pushed().report.iteration == 3
        second.block(8, iteration=4)
        assert links.await_blocks(NONE)
        assert place.weights.tolist() == [7.0 if kind is Kind.HELD else 0.0] * SIZE + [8.0] * SIZE
        assert push(links, iteration=4)
        assert [shard.pushed().report.iteration for shard in (first, second)] == [4, 4]


# A whole worker


@contextmanager
def running(config: RunConfig, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeShard]:
    """A real worker, connected to a shard of the test; it must end when the run does."""
    torch.set_num_threads(1)
    made: list[Links] = []  # whose sockets otherwise end with the process

    class KeptLinks(Links):
        def connect(self, *args) -> None:
            made.append(self)
            super().connect(*args)

    monkeypatch.setattr(trainer, "Links", KeptLinks)
    flat = build_flat(config, config.dataset.shape, torch.device("cpu"))
    shard = FakeShard(flat.weights.numel(), flat.buffers.numel())
    context = RunContext(config, Path(), SECRET, "", "", local_rank=0, local_size=1, resume=None, num_present=1)
    thread = threading.Thread(target=run_worker, args=(context, 0, [shard.address], 0))
    thread.start()
    shard.accept()
    try:
        yield shard
    finally:
        shard.send(Kind.STOP)
        thread.join(LONG_S / 2)
        for link in made[0]._links:
            link.sock.close()
        shard.close()
    assert not thread.is_alive(), "it waits for the end of a delay"


CONFIG = RunConfig(
    model=ModelConfig(),
    dataset=DigitsConfig(),
    strategy=KSyncOptions(k=1),
    cluster=ClusterConfig(workers=2),
    runner=LocalConfig(),
    device="cpu",
    max_updates=10,
)


class ComputeDelays(Delays):
    """Those of successive gradients."""

    def __init__(self, *delays_s: float) -> None:
        super().__init__()
        self._delays_s = [*delays_s]

    def compute(self, own_s: float) -> tuple[float, float]:
        return 0.0, self._delays_s.pop(0)


def test_a_worker_cancels_its_delay_and_reports_it_with_its_next_push(monkeypatch):
    monkeypatch.setattr(trainer, "DelayInjector", lambda *args: ComputeDelays(LONG_S, 0.0, LONG_S))
    with running(CONFIG, monkeypatch) as shard:
        shard.block(0)
        time.sleep(0.5)
        begun = time.monotonic()
        shard.block(1)
        report = shard.pushed().report
        assert time.monotonic() - begun < LONG_S / 4
        assert (report.version, report.iteration, report.cancelled, report.wasted) == (1, 0, 1, 0)
        assert report.computed_at - report.started_at < LONG_S / 4
        assert 0.0 < report.lost_s <= report.started_at, "the worker was busy with it"
        shard.block(2)  # the third is delayed again: the end of the run must not wait for it


def test_a_gradient_that_is_cancelled_in_the_delay_of_its_push_was_computed_in_vain(monkeypatch):
    class PushDelays(ComputeDelays):
        def push(self, shard: int) -> float:
            return self._delays_s.pop(0)

        def compute(self, own_s: float) -> tuple[float, float]:
            return 0.0, 0.0

    monkeypatch.setattr(trainer, "DelayInjector", lambda *args: PushDelays(LONG_S, 0.0, 0.0))
    with running(CONFIG, monkeypatch) as shard:
        shard.block(0)
        time.sleep(0.5)
        shard.block(1)
        report = shard.pushed().report
        assert (report.version, report.cancelled, report.wasted) == (1, 0, 1)
        assert 0.0 < report.lost_s < LONG_S / 4, "without the delay"


def test_a_gradient_that_was_finished_when_an_interrupt_came_is_not_sent(monkeypatch):
    """The block arrives during the computation; the delay that would follow is not drawn."""
    begun, may_end = threading.Event(), threading.Event()

    def slow(*args):
        problem, calls = build_problem(*args), []

        class Slow(GradientFunction):
            def __call__(self, *args):
                calls.append(args)
                if len(calls) == 2:  # the first one is the warm-up
                    begun.set()
                    may_end.wait(20)
                return super().__call__(*args)

        return replace(problem, gradient=Slow(problem.flat, problem.gradient.task))

    monkeypatch.setattr(trainer, "build_problem", slow)
    with running(CONFIG, monkeypatch) as shard:
        shard.block(0)
        assert begun.wait(20)
        shard.block(1)
        assert wait_until(lambda: shard.inbox.qsize() >= 2), "both were sent"
        time.sleep(0.05)
        may_end.set()
        report = shard.pushed().report
        assert (report.version, report.iteration, report.cancelled, report.wasted) == (1, 0, 0, 1)
