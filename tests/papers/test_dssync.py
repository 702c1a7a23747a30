"""Divide-and-Shuffle Synchronization (dssync.txt), section 3.1 by statement: Algorithm 1, equations 1 and 2."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncline.strategies.ds_sync import DsSyncOptions

# Workers -> the size of a row. The paper assumes a square "for convenience"; otherwise the grid is the one closest to
# it, whose rows are not longer than its columns.
GRIDS = {4: 2, 9: 3, 16: 4, 25: 5, 36: 6, 6: 2, 8: 2, 10: 2, 12: 3, 15: 3, 18: 3}


def group_of(rank: int, step: int, num_workers: int) -> list[int]:
    """The group that Algorithm 1 gives `rank` at step t."""
    return next(group for group in DsSyncOptions().groups(step, num_workers) if rank in group)


def averaged(replicas: np.ndarray, step: int, options: DsSyncOptions | None = None) -> np.ndarray:
    """Line 19 for all workers. replicas: [worker, parameter]."""
    mean = np.empty_like(replicas)
    for group in (options or DsSyncOptions()).groups(step, len(replicas)):
        mean[group] = replicas[group].mean(axis=0)
    return mean


# --- 3.1 Algorithm 1 ---


@pytest.mark.parametrize(
    ("step", "groups_of_4", "groups_of_9"),
    [
        (0, [[0, 1], [2, 3]], [[0, 1, 2], [3, 4, 5], [6, 7, 8]]),
        (1, [[0, 2], [1, 3]], [[0, 3, 6], [1, 4, 7], [2, 5, 8]]),
    ],
)
def test_lines_12_and_15_the_groups_of_even_and_of_odd_steps(step, groups_of_4, groups_of_9):
    """Line 12: "4 nodes:[0,1][2,3], 9 nodes: [0,1,2][3,4,5][6,7,8]"; line 15: "4 nodes:[0,2][1,3], ..."."""
    for number in (step, step + 2):
        assert DsSyncOptions().groups(number, 4) == groups_of_4
        assert DsSyncOptions().groups(number, 9) == groups_of_9


@pytest.mark.parametrize(("num_workers", "size"), GRIDS.items())
def test_lines_13_and_16_consecutive_ranks_at_even_steps_and_ranks_that_jump_at_odd_ones(num_workers, size):
    """Line 13: { x | x // GroupSize == Rank // GroupSize }; line 16, read as { x | x % GroupSize == Rank % GroupSize }.

    The ranks x lie below WorldSize == GroupSize * GroupSize: "x <= WorldSize" would be one too many.
    """
    DsSyncOptions().check_cluster(num_workers, 1)
    for rank in range(num_workers):
        assert group_of(rank, 0, num_workers) == [x for x in range(num_workers) if x // size == rank // size]
        assert group_of(rank, 1, num_workers) == [x for x in range(num_workers) if x % size == rank % size]


@pytest.mark.parametrize("num_workers", GRIDS)
def test_a_group_consists_of_workers_from_all_groups_of_the_last_step(num_workers):
    """Below equation 1: "any group in iteration t+1 is consist of workers from all groups in last iteration t"."""
    rows, columns = DsSyncOptions().groups(0, num_workers), DsSyncOptions().groups(1, num_workers)
    assert all(len(set(row) & set(column)) == 1 for row in rows for column in columns)


# --- 3.1 Equations 1 and 2 ---


@pytest.mark.parametrize("num_workers", [4, 9, 12, 16])
def test_after_two_exchanges_all_replicas_are_the_mean_of_all(num_workers):
    """Equation 2 without updates (a learning rate of zero): two steps average over all W workers, from any step on.

    Above it: "any worker i can get update information from all workers every 2 iteration".
    """
    replicas = np.random.default_rng(num_workers).normal(size=(num_workers, 7))
    for first in range(4):
        once = averaged(replicas, first)
        twice = averaged(once, first + 1)
        assert np.ptp(once, axis=0).min() > 0, "one step is not enough"
        np.testing.assert_allclose(twice, np.tile(replicas.mean(axis=0), (num_workers, 1)), rtol=1e-12, atol=1e-12)


# --- Decided points ---


@pytest.mark.parametrize("size", [2, 3, 4, 6])
def test_the_group_size_can_be_chosen(size):
    options = DsSyncOptions(group_size=size)
    options.check_cluster(12, 1)
    assert {len(row) for row in options.groups(0, 12)} == {size}
    replicas = np.random.default_rng(0).normal(size=(12, 3))
    twice = averaged(averaged(replicas, 0, options), 1, options)
    np.testing.assert_allclose(twice, np.tile(replicas.mean(axis=0), (12, 1)), atol=1e-12)


@pytest.mark.parametrize(("num_workers", "size"), [(12, 5), (12, 12), (4, 3), (9, 2)])
def test_a_group_size_that_makes_no_grid_is_refused(num_workers, size):
    with pytest.raises(ValueError, match=rf"got {num_workers} with strategy\.group_size={size}$"):
        DsSyncOptions(group_size=size).check_cluster(num_workers, 1)


def test_the_parity_of_steps_continues_over_epochs_or_restarts_with_each():
    """Algorithm 1 counts all steps; the published code's loop over an epoch begins at 0 (cifar10.py:97)."""
    each = Fraction(3)
    assert [DsSyncOptions().turn(step, each) for step in range(6)] == [0, 1, 0, 1, 0, 1]
    assert [DsSyncOptions(parity="epoch").turn(step, each) for step in range(6)] == [0, 1, 0, 0, 1, 0]


@given(st.fractions(2, 50, max_denominator=100), st.integers(0, 10_000))
def test_a_step_belongs_to_the_epoch_in_which_it_begins(each, step):
    first = step
    while first and (first - 1) // each == step // each:
        first -= 1
    options = DsSyncOptions(parity="epoch")
    assert options.turn(step, each) == (step - first) % 2
    assert len({options.turn(step + later, each) for later in range(3)}) == 2, "three in succession join all workers"
