"""K-sync, K-async, their batch variants and AdaSync (adasync.txt), statement by statement: section 2.2, 6, appendix D.

The numbers are lines of that file, each a paragraph; the quotations have the symbols that the file lost.
Figures 4 and 5, the timelines of the four variants, are tests/traces/k_*.txt.
"""

import pytest
from adasync_formulas import adasync_quadratic_k, adasync_square_root_k
from answers import applied, discarded, granted, interrupted
from hypothesis import given
from hypothesis import strategies as st

from syncline.checking.harness import Harness
from syncline.strategies.adasync import VARIANTS, Adasync, AdasyncOptions
from syncline.strategies.asp import AspOptions
from syncline.strategies.bsp import BspOptions
from syncline.strategies.k_async import KAsyncOptions, KBatchAsyncOptions
from syncline.strategies.k_sync import KBatchSyncOptions, KSyncOptions
from syncline.strategies.protocol import Command, Grant, PushArrived, Repeat, StrategyOptions, WaitFor

choices = st.integers(0, 60).flatmap(lambda size: st.lists(st.integers(0, 99), min_size=size, max_size=size))


def same_answers(one: StrategyOptions, other: StrategyOptions, history: list[int], num_workers: int) -> None:
    """Both strategies receive the same events, and answer with the same updates and grants."""
    ours, theirs = Harness(one, num_workers), Harness(other, num_workers)
    for choice in history:
        worker = theirs.running[choice % len(theirs.running)]
        left, right = ours.push(worker), theirs.push(worker)
        assert (applied(left), granted(left)) == (applied(right), granted(right))
        assert (ours.granted, interrupted(left)) == (theirs.granted, [])


# --- 2.2 K-sync SGD (line 47) ---


def test_k_sync_waits_for_the_first_k_workers_cancels_the_others_and_sends_the_weights_to_all():
    """47: "The PS only waits for the first K out of P workers to push their gradients. Once it receives K gradients, it
    updates w and cancels the remaining workers"; "The updated parameter vector is sent to all workers"."""
    harness = Harness(KSyncOptions(k=2), 4)
    assert applied(harness.push(3)) == []
    assert harness.running == [0, 1, 2]
    second = harness.push(1)
    assert applied(second) == [(0, 1)]
    assert interrupted(second) == [0, 2]
    assert sorted(granted(second)) == [0, 1, 2, 3]
    assert harness.granted == dict.fromkeys(range(4), 1)


def test_k_sync_no_worker_contributes_two_gradients_to_one_update():
    """47: the sum of equation 2 runs over workers. One that left and rejoined meanwhile has already contributed."""
    harness = Harness(KSyncOptions(k=2), 4)
    harness.push(0)
    harness.leave(0)
    harness.join(0)
    assert applied(harness.push(0)) == []
    assert applied(harness.push(1)) == [(0, 2)]


# --- 2.2 K-batch-sync SGD (line 50) ---


@given(st.integers(1, 5), st.integers(1, 7), choices)
def test_k_batch_sync_all_compute_at_the_same_weights(num_workers, k, history):
    """50: "all the P workers start computing gradients with the same w"."""
    harness = Harness(KBatchSyncOptions(k=k), num_workers)
    for choice in history:
        harness.push(harness.running[choice % len(harness.running)])
        assert harness.granted == dict.fromkeys(range(num_workers), harness.version), "and no worker is idle"


def test_k_batch_sync_a_worker_continues_with_the_next_mini_batch_at_the_same_weights():
    """50: "it pushes its update to the PS and evaluates the gradient on the next mini-batch at the same w"."""
    harness = Harness(KBatchSyncOptions(k=4), 2)
    for _ in range(3):
        (answer,) = harness.push(0)
        assert isinstance(answer, Repeat)
        assert harness.granted[0] == 0


def test_k_batch_sync_takes_the_first_k_mini_batches_of_any_workers():
    """50: "The PS updates using the first K mini-batches that finish and cancels the remaining workers"."""
    harness = Harness(KBatchSyncOptions(k=3), 3)
    harness.push(1)
    harness.push(1)
    third = harness.push(0)
    assert applied(third) == [(0, 1, 2)]
    assert interrupted(third) == [1, 2], "worker 0 has just finished, the others compute"
    assert sorted(granted(third)) == [0, 1, 2]


# --- 2.2 K-async SGD (line 51) ---


def test_k_async_waits_for_the_first_k_workers_and_cancels_none():
    """51: "The PS waits for the first K out of P that finish first, but it does not cancel the remaining workers"."""
    harness = Harness(KAsyncOptions(k=2), 4)
    harness.push(3)
    second = harness.push(1)
    assert applied(second) == [(0, 1)]
    assert granted(second) == [3, 1]
    assert interrupted(second) == []
    assert harness.granted == {3: 1, 1: 1, 0: 0, 2: 0}


def test_k_async_uses_gradients_of_older_weights():
    """51: "the gradients returned by each worker might be computed at a stale or older value of the parameter w"."""
    harness = Harness(KAsyncOptions(k=2), 3)
    for worker in (0, 1, 0, 1):
        harness.push(worker)
    assert harness.pushed | {2: harness.granted[2]} == {0: 1, 1: 1, 2: 0}
    harness.push(2)
    assert applied(harness.push(0)) == [(4, 5)], "one of version 0, one of version 2"


@given(st.integers(1, 5), st.data())
def test_k_async_takes_one_gradient_of_k_different_workers(num_workers, data):
    """51: "all the P workers compute their respective gradients on a single mini-batch"; after it a worker waits."""
    k = data.draw(st.integers(1, num_workers))
    harness = Harness(KAsyncOptions(k=k), num_workers)
    owner = {}
    for choice in data.draw(choices):
        worker = harness.running[choice % len(harness.running)]
        owner[harness.next_push] = worker
        for pushes in applied(harness.push(worker)):
            assert len({owner[push] for push in pushes}) == len(pushes) == k
        assert num_workers - len(harness.running) < k


def test_k_async_no_worker_contributes_two_gradients_to_one_update():
    """53: "the index of the workers that contribute to the update": one that rejoins has already contributed."""
    harness = Harness(KAsyncOptions(k=2), 4)
    harness.push(0)
    harness.leave(0)
    harness.join(0)
    again = harness.push(0)
    assert (applied(again), discarded(again)) == ([], [1])
    assert applied(harness.push(1)) == [(0, 2)]
    assert harness.running == [0, 1, 2, 3]


# --- 2.2 K-batch-async SGD (line 56) ---


@given(st.integers(1, 5), st.integers(1, 7), choices)
def test_k_batch_async_no_worker_is_idle(num_workers, k, history):
    """56: "it reduces the runtime per iteration as no worker is idle"."""
    harness = Harness(KBatchAsyncOptions(k=k), num_workers)
    for choice in history:
        worker = choice % num_workers
        assert granted(harness.push(worker)) == [worker]
        assert harness.running == list(range(num_workers))


def test_k_batch_async_takes_k_mini_batches_of_any_workers():
    """56: "the PS waits for K mini-batches before updating itself but irrespective of which worker they come from"."""
    harness = Harness(KBatchAsyncOptions(k=3), 3)
    assert [applied(harness.push(worker)) for worker in (1, 1, 1, 0, 2, 1)] == [
        [],
        [],
        [(0, 1, 2)],
        [],
        [],
        [(3, 4, 5)],
    ]


def test_k_batch_async_a_worker_fetches_the_current_weights():
    """56: it "pushes its gradient to the PS, fetches current parameter at PS and starts computing gradient on the next
    mini-batch based on the current value of the PS": updated by this very gradient, or not yet."""
    harness = Harness(KBatchAsyncOptions(k=2), 3)
    harness.push(0)
    assert harness.granted == {0: 0, 1: 0, 2: 0}
    harness.push(1)
    assert harness.granted == {0: 0, 1: 1, 2: 0}
    harness.push(0)
    assert harness.granted == {0: 1, 1: 1, 2: 0}


# --- 2.2, 3.2 and 5.2 Special cases ---


@pytest.mark.parametrize(
    ("options", "other"),
    [
        (lambda _: KAsyncOptions(k=1), AspOptions()),  # 51: "exactly equivalent to fully asynchronous SGD"
        (lambda _: KBatchAsyncOptions(k=1), AspOptions()),  # 92: "fully asynchronous SGD is actually K-batch-async"
        (lambda p: KSyncOptions(k=p), BspOptions()),  # 47: "exactly equivalent to a fully synchronous SGD"
        (lambda p: KAsyncOptions(k=p), BspOptions()),  # 234: "become identical to fully synchronous SGD"
    ],
    ids=["k_async of 1", "k_batch_async of 1", "k_sync of P", "k_async of P"],
)
@given(num_workers=st.integers(1, 5), history=choices)
def test_with_k_of_1_or_of_p_it_is_asynchronous_or_synchronous_sgd(options, other, num_workers, history):
    same_answers(options(num_workers), other, history, num_workers)


# --- 6 AdaSync, and appendix D ---


def wait_fors(options: AdasyncOptions, losses: list[float], num_workers: int = 8) -> list[list[Command]]:
    """The `WaitFor` commands after each interval, with F as listed; the first is F_0."""
    harness = Harness(options, num_workers)
    found: list[list[Command]] = []
    for number, loss in enumerate([*losses, 1.0]):
        begins_at = number * options.interval  # the first push after the end of the interval before
        changes: list[Command] = []
        for place in range(3):
            after = begins_at + place * options.interval / 4 - harness.now
            changes += [c for c in harness.push(harness.running[0], after, loss) if isinstance(c, WaitFor)]
        found.append(changes)
    return found[1:]


def k_after(options: AdasyncOptions, losses: list[float], num_workers: int = 8) -> list[int]:
    """K in the interval after each of these losses."""
    k, found = options.k, []
    for changes in wait_fors(options, losses, num_workers):
        for wait_for in changes:
            assert isinstance(wait_for, WaitFor)
            k = wait_for.count
        found.append(k)
    return found


RATIOS = [(2, 2.67, 2.83), (4, 3.47, 4.00), (10, 4.69, 6.32), (30, 6.12, 10.95)]


@pytest.mark.parametrize(("ratio", "quadratic", "square_root"), RATIOS)
@pytest.mark.parametrize("variant", VARIANTS)
def test_the_values_for_eight_workers_from_two(variant, ratio, quadratic, square_root):
    """Lines 262, 506, 516: the positive root of the quadratic for K-sync, K_0 sqrt(F_0/F) for the others; rounded to
    the nearest integer and clipped to P."""
    machine = Adasync(8, AdasyncOptions(variant=variant, k=2))
    unrounded = quadratic if variant == "k_sync" else square_root
    assert machine.k_for(3.0, 3.0 / ratio) == min(8, round(unrounded))
    theory = adasync_quadratic_k(2, ratio, 8) if variant == "k_sync" else adasync_square_root_k(2, ratio)
    assert theory == pytest.approx(unrounded, abs=0.005)


@given(st.sampled_from(VARIANTS), st.integers(2, 40), st.data(), st.floats(1e-3, 1e3), st.floats(1e-3, 1e3))
def test_k_is_the_rounded_rule(variant, num_workers, data, first_loss, loss):
    """Appendix D.1 to D.4, against the closed forms."""
    k = data.draw(st.integers(1, num_workers))
    found = Adasync(num_workers, AdasyncOptions(variant=variant, k=k)).k_for(first_loss, loss)
    ratio = first_loss / loss
    rule = adasync_quadratic_k(k, ratio, num_workers) if variant == "k_sync" else adasync_square_root_k(k, ratio)
    assert abs(found - min(max(rule, 1), num_workers)) <= 0.5 + 1e-9
    assert 1 <= found <= num_workers


def test_k_changes_after_every_interval():
    """251: "after every slot of time t we vary K"; 259: "after each time interval t, we can update K"."""
    options = AdasyncOptions(variant="k_async", k=1, interval=10.0)
    assert k_after(options, [8.0, 2.0, 0.5, 0.125]) == [1, 2, 4, 8]


def test_an_interval_ends_at_the_first_push_after_it():
    """Decided: no timer is set, and the next interval ends at the next multiple."""
    harness = Harness(AdasyncOptions(variant="k_batch_async", k=1, interval=10.0), 4)

    def push(at: float, loss: float) -> list[str]:
        return [c.because for c in harness.push(0, at - harness.now, loss) if isinstance(c, WaitFor)]

    assert push(3.0, 4.0) == []
    assert push(12.0, 1.0) == [], "F_0 = 4 is known, and K stays"
    assert push(19.0, 1.0) == []
    assert push(20.0, 0.25) == ["F_0 4, F 1"]
    assert harness.waits_for == 2
    assert push(47.0, 0.25) == ["F_0 4, F 0.25"], "two intervals without a push are one long one"
    assert push(50.0, 0.25) == [], "the same loss, the same K"


def test_a_push_at_the_end_of_an_interval_begins_the_next_one():
    """Also where the multiple is rounded: 0.5 // 0.1 is 4."""
    harness = Harness(AdasyncOptions(variant="k_batch_async", k=1, interval=0.1), 4)
    assert isinstance(harness.strategy, Adasync)
    for _ in range(3):
        harness.push(0, after=0.5, loss=4.0)
        assert harness.strategy.ends > harness.now


def test_f_0_is_the_loss_of_the_first_interval():
    """259: "We assume that F is maximum at the beginning of training"; F is the mean of what workers reported."""
    harness = Harness(AdasyncOptions(variant="k_async", k=2, interval=1.0), 4)
    for at, loss in ((0.2, 3.0), (0.4, 5.0), (1.1, 2.0), (1.2, 2.0)):
        harness.push(harness.running[0], at - harness.now, loss)
    machine = harness.strategy
    assert isinstance(machine, Adasync)
    assert machine.first_loss == 4.0
    assert machine.k_for(machine.first_loss, 2.0) == 3, "2 sqrt(2) = 2.83"


def test_f_0_may_be_the_loss_at_the_initial_weights():
    """259: "at the beginning of training". Only pushes of the first interval that were computed at version 0 count."""
    harness = Harness(AdasyncOptions(variant="k_async", k=1, interval=1.0, f0="start"), 4)

    def push(worker: int, at: float, loss: float) -> list[str]:
        return [c.because for c in harness.push(worker, at - harness.now, loss) if isinstance(c, WaitFor)]

    assert push(0, 0.2, 9.0) == []
    assert push(0, 0.4, 0.5) == [], "of version 1"
    assert push(1, 0.6, 7.0) == []
    for at in (0.7, 0.8, 0.9):
        assert push(0, at, 0.5) == []
    assert push(2, 1.1, 100.0) == ["F_0 8, F 3"], "of version 0, but after the first interval"
    assert harness.strategy.first_loss == 8.0


@pytest.mark.parametrize("variant", VARIANTS)
def test_k_never_falls(variant):
    """259: the smaller F, the larger K; noise in the estimate of F must not lower it again."""
    found = k_after(AdasyncOptions(variant=variant, k=2, interval=1.0), [8.0, 1.0, 6.0, 16.0, 0.7])
    assert found == sorted(found)
    assert found[0] == 2
    assert found[1] == found[2] == found[3] > 2


@pytest.mark.parametrize("variant", VARIANTS)
def test_k_stays_within_the_number_of_workers(variant):
    """25: K is "the number of workers (out of the total of P workers)"."""
    found = k_after(AdasyncOptions(variant=variant, k=1, interval=1.0), [1e4, 1e-4], num_workers=4)
    assert found == [1, 4]


@pytest.mark.parametrize("variant", ["k_batch_sync", "k_batch_async"])
def test_a_k_batch_variant_may_count_more_mini_batches_than_there_are_workers(variant):
    """Decided: K counts mini-batches there; `k_cap` lifts the bound."""
    options = AdasyncOptions(variant=variant, k=2, interval=1.0, k_cap=20)
    assert k_after(options, [8.0, 2.0, 0.5, 0.01], num_workers=3) == [2, 4, 8, 20]


@pytest.mark.parametrize("variant", VARIANTS)
def test_without_losses_k_stays_as_it_was(variant):
    """Decided: a simulation of times alone reports losses of 0."""
    assert k_after(AdasyncOptions(variant=variant, k=2, interval=1.0), [0.0, 0.0, 0.0]) == [2, 2, 2]


@pytest.mark.parametrize(
    ("variant", "plain"),
    [
        ("k_sync", KSyncOptions(k=2)),
        ("k_batch_sync", KBatchSyncOptions(k=2)),
        ("k_async", KAsyncOptions(k=2)),
        ("k_batch_async", KBatchAsyncOptions(k=2)),
    ],
)
@given(history=choices)
def test_while_k_is_constant_it_is_the_plain_variant(variant, plain, history):
    """249: "gradually varying the level of synchronicity (parameter K) for the different SGD variants"."""
    ours, theirs = Harness(AdasyncOptions(variant=variant, k=2), 4), Harness(plain, 4)
    for choice in history:
        worker = theirs.running[choice % len(theirs.running)]
        assert ours.push(worker, 0.1) == theirs.push(worker, 0.1)


def test_the_first_k_is_used_until_k_changes_and_the_new_one_from_then_on():
    """253: K is chosen "for each time interval": a K that has grown applies to the current update."""
    harness = Harness(AdasyncOptions(variant="k_sync", k=1, interval=10.0), 4)
    assert applied(harness.push(0, 1.0, loss=4.0)) == [(0,)]
    assert applied(harness.push(0, 10.0, loss=0.25)) == [(1,)]
    grown = harness.push(0, 10.0, loss=0.25)
    assert applied(grown) == [(2,)]
    assert [c.count for c in grown if isinstance(c, WaitFor)] == [3], "a = 16/3: K = 2.67"
    assert [applied(harness.push(worker)) for worker in (0, 1, 2)] == [[], [], [(3, 4, 5)]]


def test_k_sync_with_k_0_of_all_workers_stays_there():
    """Decided: for K_0 = P the quadratic has no finite a."""
    assert Adasync(4, AdasyncOptions(variant="k_sync", k=4)).k_for(8.0, 1.0) == 4


def test_a_worker_that_leaves_lowers_a_k_of_workers_until_it_is_back():
    """Decided: K falls with the workers, and the K that the losses ask for is kept."""
    harness = Harness(AdasyncOptions(variant="k_async", k=3), 3)
    assert harness.leave(2) == [WaitFor(2, "worker 2 left")]
    assert [applied(harness.push(worker)) for worker in (0, 1)] == [[], [(0, 1)]]
    assert harness.join(2) == [WaitFor(3, "worker 2 joined"), Grant(2, "joined")]


def test_workers_that_leave_or_join_do_not_change_the_loss():
    """Only pushes carry losses: other events leave F and the interval alone."""
    machine = Adasync(2, AdasyncOptions(variant="k_async", k=1, interval=1.0))
    machine.handle(PushArrived(0.5, 0, 0, 0, 4.0))
    before = machine.state_dict()
    harness = Harness(AdasyncOptions(variant="k_async", k=1, interval=1.0), 2)
    harness.push(0, 0.5, 4.0)
    harness.leave(1)
    harness.join(1)
    after = harness.strategy.state_dict()
    assert {key: after[key] for key in before if key != "variant"} == {
        k: v for k, v in before.items() if k != "variant"
    }
