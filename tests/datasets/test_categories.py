"""Rows of the joint table: the same on every machine, one for missing values, and separate for each field."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from syncline.datasets.categories import hashed_rows, mix

values_of_a_field = st.lists(st.integers(0, 2**32 - 1) | st.integers(0, 5), max_size=60)


def as_values(numbers: list[int]) -> np.ndarray:
    return np.array(numbers, np.uint32)


def test_the_hash_is_murmurs_finaliser() -> None:
    # By hand: 32-bit arithmetic on Python's integers.
    def by_hand(h: int) -> int:
        h = (h ^ h >> 16) * 0x85EBCA6B & 0xFFFFFFFF
        h = (h ^ h >> 13) * 0xC2B2AE35 & 0xFFFFFFFF
        return h ^ h >> 16

    keys = [0, 1, 0x68FD1E64, 0xFFFFFFFF]
    assert mix(as_values(keys)).tolist() == [by_hand(key) for key in keys]
    assert by_hand(1) == 0x514E28B7  # published


def test_rows_are_the_same_on_every_machine() -> None:
    numbers = [0x68FD1E64, 0x80E26C9B, 0xFB936136]
    rows = [hashed_rows(field, as_values(numbers), np.zeros(3, bool), 1000) for field in (0, 25)]
    assert [row.tolist() for row in rows] == [[66, 991, 333], [25827, 25431, 25740]]


@given(values_of_a_field, st.integers(0, 25), st.integers(2, 1 << 26), st.data())
def test_hashed_rows_stay_in_their_field(numbers: list[int], field: int, buckets: int, data: st.DataObject) -> None:
    missing = np.array(data.draw(st.lists(st.booleans(), min_size=len(numbers), max_size=len(numbers))), bool)
    rows = hashed_rows(field, as_values(numbers), missing, buckets)
    assert rows.dtype == np.int32
    place = rows - field * buckets
    assert (place[missing] == 0).all()
    assert ((place[~missing] >= 1) & (place[~missing] < buckets)).all()
