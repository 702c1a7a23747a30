"""Which mini-batches a push is of."""

from itertools import chain

from examples import scaled
from hypothesis import given
from hypothesis import strategies as st

from syncline.rounds import SINGLE, Rounds


@scaled(1.0)
@given(st.integers(1, 50), st.integers(0, 20), st.integers(0, 60))
def test_rounds_take_the_mini_batches_one_after_another(steps: int, single: int, num: int) -> None:
    rounds = Rounds(steps, single)
    taken = list(chain.from_iterable(map(rounds.batches, range(num))))
    assert taken == list(range(len(taken)))
    assert rounds.batches(num).start == len(taken)
    assert [rounds.size(number) for number in range(num)] == [len(rounds.batches(number)) for number in range(num)]
    assert len(taken) == min(num, single) + steps * max(0, num - single)


def test_a_push_of_each_mini_batch_is_told_as_nothing() -> None:
    assert [SINGLE.batches(number) for number in (0, 7)] == [range(1), range(7, 8)]
    assert (SINGLE.describe(3), Rounds(8).describe(0), Rounds(8, 2).describe(1)) == ("", "8 local steps", "")


def test_workers_may_make_different_numbers_of_steps() -> None:
    rounds = Rounds(8, 1, by_worker=(8, 3))
    assert [rounds.of(worker) for worker in (0, 1)] == [Rounds(8, 1), Rounds(3, 1)]
    assert Rounds(8).of(5) == Rounds(8)
    assert [each.differ for each in (rounds, Rounds(8), Rounds(8, 1))] == [True, False, True]
