"""A worker with a pull rule, connected to real acceptors: blocks may arrive at any time."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
from fake_shards import LONG_S, NONE, SIZE, Delays, FakeShard, at_once, linked, push, soon, staging

from syncline.learning.layout import blocks
from syncline.live.wire.frames import Kind
from syncline.live.worker.links import Links
from syncline.strategies.psp import PspOptions


def pulled(num_shards: int = 2, **options) -> tuple[Links, SimpleNamespace]:
    place = staging(num_shards)
    rule = PspOptions(**options).pull_rule(num_shards)
    return Links(0, place, blocks(place.weights.numel(), num_shards), rule=rule), place


@contextmanager
def pulling(**options) -> Iterator[tuple[Links, SimpleNamespace, FakeShard, FakeShard]]:
    """A worker of two shards that computes at their first blocks."""
    links, place = pulled(**options)
    with linked(links, 2) as (first, second):
        assert links.await_blocks(NONE)
        yield links, place, first, second


def halves(place: SimpleNamespace) -> tuple[float, float]:
    first, second = place.weights[:SIZE], place.weights[SIZE:]
    assert len(set(first.tolist())) == len(set(second.tolist())) == 1, "a block is whole"
    assert set(place.buffers.tolist()) == {first[0].item()}
    return first[0].item(), second[0].item()


def test_half_of_the_blocks_are_enough_and_every_push_reports_all_versions():
    with pulling(b=50) as (links, place, first, second):
        place.gradient[:SIZE], place.gradient[SIZE:] = 1.5, 2.5
        place.buffers[:] = 9.0
        push(links)
        for shard, value in ((first, 1.5), (second, 2.5)):
            pushed = shard.pushed()
            assert (pushed.report.version, pushed.report.tag) == (0, 0)
            assert pushed.gradient.versions.tolist() == [0, 0]
            assert set(pushed.gradient.flat.tolist()) == {value}
        second.block(1)
        with at_once():
            assert links.await_blocks(NONE)
        assert halves(place) == (0.0, 1.0), "the other stays as it was"
        push(links)
        reports = [shard.pushed().report for shard in (first, second)]
        assert [(report.version, report.tag) for report in reports] == [(0, 1), (1, 1)]
        assert first.pushes[-1].gradient.versions.tolist() == [0, 1]


def test_a_worker_that_all_shards_hold_when_it_resumes_continues_with_their_next_blocks():
    """It has pushed at those that they send first."""
    links, place = pulled(b=50)
    with linked(links, 2, resumed=[(Kind.HELD, 3), (Kind.HELD, 3)]) as (first, second):
        first.block(1)
        soon(lambda: second.block(1), 0.3)
        begun = time.monotonic()
        assert links.await_blocks(NONE)
        assert 0.25 < time.monotonic() - begun < LONG_S, "a new process needs all blocks"
        assert halves(place) == (1.0, 1.0)
        push(links)
        assert [shard.pushed().report.tag for shard in (first, second)] == [1, 1]


def test_a_worker_that_one_of_two_shards_holds_pushes_to_both_again():
    links, place = pulled(b=50)
    with linked(links, 2, resumed=[(Kind.HELD, 3), (Kind.BLOCK, 2)]) as (first, second), at_once():
        assert links.await_blocks(NONE)
        assert halves(place) == (0.0, 0.0)
        push(links)
        assert [shard.pushed().report.tag for shard in (first, second)] == [0, 0]


def test_blocks_that_arrive_while_it_computes_have_memory_of_their_own_and_the_newest_is_used():
    with pulling(b=100) as (links, place, first, second):
        for version in (1, 2, 3):
            for shard in (first, second):
                shard.block(version)
                links.wait(0.02)
        assert not links.is_interrupted()
        assert halves(place) == (0.0, 0.0)
        push(links)
        assert first.pushed().report.version == 0
        assert links.await_blocks(NONE)
        assert halves(place) == (3.0, 3.0)


def test_the_memory_of_arrived_blocks_is_used_again():
    links, place = pulled(b=100)
    with linked(links, 2) as (first, second):
        for version in range(1, 50):
            links.await_blocks(NONE)
            push(links)
            for shard in (first, second):
                shard.block(version)
        links.await_blocks(NONE)
        assert halves(place) == (49.0, 49.0)
        for link in links._links:
            assert len(link.free) + len(link.waiting) <= 2


def test_a_late_block_is_not_waited_for_and_its_delay_is_reported_once():
    """Shard 0's first block is on time, its second 0.2 s late; its third would be ten seconds late."""
    links, place = pulled(b=50)
    pace = Delays({0: [0.0, 0.2, LONG_S]})
    with linked(links, 2) as (first, second):
        links.await_blocks(pace)
        push(links, pace)
        first.block(1)
        assert links.await_blocks(pace)  # of shard 0 alone, late as it is
        assert halves(place) == (1.0, 0.0)
        push(links, pace)
        first.block(2)
        second.block(2)
        with at_once():
            assert links.await_blocks(pace)
        assert halves(place) == (1.0, 2.0)
        push(links, pace)
        delays = [first.pushed().report.pull_delay_s for _ in range(3)]
        assert delays[0] == 0.0
        rounding = 1e-6  # of the difference of two clock readings
        assert 0.2 - rounding <= delays[1] < LONG_S / 2
        assert delays[2] == 0.0, "no block was taken"


def test_the_worker_waits_tau2_for_more_than_its_share():
    with pulling(b=50, tau2=0.3) as (links, place, first, second):
        push(links)
        first.block(1)
        begun = time.monotonic()
        assert links.await_blocks(NONE)
        assert 0.3 <= time.monotonic() - begun < LONG_S
        assert halves(place) == (1.0, 0.0)
        push(links)
        first.block(2)
        second.block(2)
        assert links.await_blocks(NONE)
        assert halves(place) == (2.0, 2.0)


def test_with_the_newest_tag_a_late_gradient_counts():
    for tag, expected in (("newest", 4), ("step", 0)):
        with pulling(b=50, tag=tag) as (links, _, first, second):
            second.block(4)
            links.wait(0.1)
            push(links)
            assert first.pushed().report.tag == expected
            assert (second.pushed().report.version, second.pushes[-1].report.tag) == (0, expected)


def test_another_shard_is_pushed_to_first_each_time():
    links, _ = pulled(num_shards=3)
    with linked(links, 3) as shards:
        turns = []
        for version in range(1, 5):
            links.await_blocks(NONE)
            turns.append([link.shard for link in links._push_order()])
            push(links)
            for shard in shards:
                shard.block(version)
        assert turns == [[0, 1, 2], [1, 2, 0], [2, 0, 1], [0, 1, 2]]


@pytest.mark.parametrize("when", ["waiting", "computing"])
def test_a_worker_with_a_pull_rule_continues_when_one_of_two_shards_has_ended(when):
    with pulling(b=100) as (links, place, first, second):
        if when == "computing":
            first.send(Kind.STOP)
            links.wait(0.05)
        push(links)
        second.block(1)
        if when == "waiting":
            soon(lambda: first.send(Kind.STOP))
        with at_once():
            assert links.await_blocks(NONE), "nothing more will come of the first"
        assert halves(place) == (0.0, 1.0)
        push(links)
        tags = [second.pushed().report.tag for _ in range(2)]
        assert tags == [0, 1]
        second.send(Kind.STOP)
        with at_once():
            assert not links.await_blocks(NONE)
