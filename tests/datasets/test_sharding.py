"""Shares: a partition, whole epochs, and random access; one order for all workers."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from syncline.assembly.problem import build_problem
from syncline.config import compose
from syncline.datasets.sharding import SharedCursor, Turns, WorkerShare, class_shares


@st.composite
def sizes(draw: st.DrawFn) -> tuple[int, int]:
    """Samples and workers, at least one sample a worker."""
    num_workers = draw(st.integers(1, 12))
    return draw(st.integers(num_workers, 200)), num_workers


@given(sizes(), st.integers(0, 2**40))
def test_shares_are_a_partition_of_nearly_equal_parts(size: tuple[int, int], seed: int) -> None:
    num_samples, num_workers = size
    shares = [WorkerShare(num_samples, num_workers, w, 1, seed).samples for w in range(num_workers)]
    assert sorted(np.concatenate(shares).tolist()) == list(range(num_samples))
    lengths = [len(share) for share in shares]
    assert max(lengths) - min(lengths) <= 1


@given(sizes(), st.integers(1, 12), st.floats(1e-3, 1e3), st.integers(0, 2**40))
def test_shares_of_classes_are_a_partition_of_the_same_sizes(
    size: tuple[int, int], num_classes: int, concentration: float, seed: int
) -> None:
    num_samples, num_workers = size
    labels = np.random.default_rng(0).integers(num_classes, size=num_samples)
    shares = class_shares(labels, num_workers, concentration, seed)
    assert sorted(np.concatenate(shares).tolist()) == list(range(num_samples))
    alike = [WorkerShare(num_samples, num_workers, w, 1, seed).samples for w in range(num_workers)]
    assert [len(share) for share in shares] == [len(share) for share in alike]
    again = class_shares(labels, num_workers, concentration, seed)
    assert all(np.array_equal(*each) for each in zip(shares, again, strict=True))


def test_the_lower_the_concentration_the_fewer_classes_a_share_has() -> None:
    labels = np.repeat(np.arange(10), 1000)

    def largest(concentration: float) -> float:
        """Part of the most frequent class in the share of worker 0, who has all to choose from; mean over seeds."""
        shares = [class_shares(labels, 10, concentration, seed)[0] for seed in range(20)]
        return float(np.mean([np.bincount(labels[share]).max() / len(share) for share in shares]))

    found = [largest(concentration) for concentration in (1e-3, 0.1, 1.0, 100.0, 1e6)]
    assert found == sorted(found, reverse=True)
    assert found[0] > 0.95, "one class"
    assert found[-1] < 0.13, "a tenth, and the noise of a draw"


@given(sizes(), st.integers(1, 90), st.integers(0, 5), st.data())
def test_each_epoch_sees_each_sample_of_the_share_once(
    size: tuple[int, int], batch_size: int, seed: int, data: st.DataObject
) -> None:
    num_samples, num_workers = size
    worker = data.draw(st.integers(0, num_workers - 1))
    share = WorkerShare(num_samples, num_workers, worker, batch_size, seed)
    length = len(share.samples)
    row = np.concatenate([share.batch(i) for i in range(3 * length // batch_size + 1)])
    assert len(row) % batch_size == 0
    for epoch in range(len(row) // length):
        assert sorted(row[epoch * length : (epoch + 1) * length]) == sorted(share.samples)


@given(sizes(), st.integers(1, 60), st.lists(st.integers(0, 40), min_size=1, max_size=10))
def test_random_access_equals_sequential(size: tuple[int, int], batch_size: int, wanted: list[int]) -> None:
    num_samples, num_workers = size
    jumping = WorkerShare(num_samples, num_workers, 0, batch_size, seed=3)
    walking = WorkerShare(num_samples, num_workers, 0, batch_size, seed=3)
    walked = [walking.batch(i) for i in range(max(wanted) + 1)]
    for iteration in wanted:
        np.testing.assert_array_equal(jumping.batch(iteration), walked[iteration])


def test_epochs_workers_and_seeds_are_shuffled_differently() -> None:
    def order(worker: int, seed: int, epoch: int) -> list[int]:
        share = WorkerShare(200, 2, worker, 100, seed)
        places = {sample: place for place, sample in enumerate(share.samples.tolist())}
        return [places[sample] for sample in share.batch(epoch).tolist()]

    orders = [order(0, 0, 0), order(0, 0, 1), order(1, 0, 0), order(0, 1, 0), order(0, 2**32, 0)]
    assert len({tuple(o) for o in orders}) == len(orders)
    assert not np.array_equal(WorkerShare(200, 2, 0, 1, 0).samples, WorkerShare(200, 2, 0, 1, 1).samples)


def test_the_caller_may_write_into_a_batch() -> None:
    share = WorkerShare(100, 1, 0, 10, seed=0)
    before = share.batch(0).copy()
    share.batch(0)[:] = -1
    np.testing.assert_array_equal(share.batch(0), before)


@given(sizes(), st.integers(1, 30), st.integers(0, 3))
def test_workers_that_take_turns_have_the_batches_of_the_one_order(
    size: tuple[int, int], batch_size: int, seed: int
) -> None:
    num_samples, num_workers = size
    order = WorkerShare(num_samples, 1, 0, batch_size, seed)
    turns = [Turns(order, num_workers, worker) for worker in range(num_workers)]
    for step in range(3):
        for worker, batches in enumerate(turns):
            np.testing.assert_array_equal(batches.batch(step), order.batch(step * num_workers + worker))


def test_a_cursor_gives_each_batch_to_the_worker_that_begins_next_and_survives_its_state() -> None:
    cursor = SharedCursor(3)
    assert [cursor.begin(worker) for worker in (2, 0, 1)] == [0, 1, 2]
    assert cursor.finish(0) == 1
    assert cursor.begin(2) == 0, "its gradient was cancelled: it keeps the batch"
    resumed = SharedCursor(3)
    resumed.load_state_dict(cursor.state_dict())
    for each in (cursor, resumed):
        assert [each.begin(0), each.finish(2), each.begin(2), each.finish(1)] == [3, 0, 4, 2]
    with pytest.raises(AssertionError, match="worker 1 has begun no gradient"):
        cursor.finish(1)


def test_workers_of_a_run_have_the_shares_of_their_classes() -> None:
    words = [
        "strategy=asp",
        "model=softmax_regression",
        "cluster.workers=4",
        "batch_size=32",
        "dataset.concentration=0.001",
    ]
    config, _ = compose(words)
    problem = build_problem(config, torch.device("cpu"))
    for worker, batches in enumerate(problem.batches_of_all(config)):
        images, labels = batches.take(0).samples
        alone = problem.batches(config, worker).take(0).samples  # as in a process of its own
        assert torch.equal(images, alone[0])
        assert torch.equal(labels, alone[1])
        assert len(labels.unique()) < 7, "of ten"
