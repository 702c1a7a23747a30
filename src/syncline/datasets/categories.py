"""Maps the values of categorical fields to rows of one joint embedding table.

Legend: N values of one field, F fields. Every field has its own row for a missing value.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

Values = npt.NDArray[np.uint32]
Mask = npt.NDArray[np.bool_]
Rows = npt.NDArray[np.int32]

GOLDEN = 0x9E3779B9  # 2^32 / golden ratio: keeps the keys of fields far apart
GATHERED = 1 << 19  # values of a field that are counted at a time


def mix(keys: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
    """A bijection of 32-bit integers in which every bit affects half of the others; the same on every machine.

    Source: the finaliser of MurmurHash3 (Appleby 2011).
    """
    mixed = keys ^ (keys >> np.uint32(16))
    mixed *= np.uint32(0x85EBCA6B)
    mixed ^= mixed >> np.uint32(13)
    mixed *= np.uint32(0xC2B2AE35)
    mixed ^= mixed >> np.uint32(16)
    return mixed


@dataclass(frozen=True)
class HashedValues:
    """Values hashed into buckets: the size of the table is known in advance, and some values share a row.

    Row 0 of a field is for a missing value, rows 1 .. buckets - 1 for the others.
    """

    num_fields: int
    buckets: int  # of each field, >= 2; rows are 32-bit

    @property
    def num_rows(self) -> int:
        return self.num_fields * self.buckets

    def rows(self, field: int, values: Values, missing: Mask) -> Rows:
        """int32 [N]: rows of the joint table for these values of a field; `values` counts for nothing where missing."""
        # Keyed by the field, so that values that collide in one field do not in another.
        key = np.uint32((field + 1) * GOLDEN & 0xFFFFFFFF)
        bucket = 1 + mix(values ^ key) % np.uint32(self.buckets - 1)
        rows: Rows = np.where(missing, 0, bucket).astype(np.int32) + np.int32(field * self.buckets)
        return rows


@dataclass(frozen=True)
class FrequentValues:
    """Frequent values have their own rows.

    Row 0 of a field is for a missing value, row 1 for rare and unseen ones, the rest for the frequent ones.
    """

    frequent: Sequence[Values]  # [F] of ascending values

    @cached_property
    def _begins(self) -> npt.NDArray[np.int64]:
        return np.cumsum([0] + [2 + len(values) for values in self.frequent])  # [F + 1]

    @property
    def num_rows(self) -> int:
        return int(self._begins[-1])

    def rows(self, field: int, values: Values, missing: Mask) -> Rows:
        """int32 [N]: rows of the joint table for these values of a field; `values` counts for nothing where missing."""
        frequent = self.frequent[field]
        place = np.searchsorted(frequent, values)  # [N]
        known = place < len(frequent)
        known[known] = frequent[place[known]] == values[known]
        own = np.where(known, place + 2, 1)
        rows: Rows = (np.where(missing, 0, own) + self._begins[field]).astype(np.int32)
        return rows


class ValueCounter:
    """Counts the values of one field; takes 8 bytes a distinct value, and a buffer of values not yet counted."""

    def __init__(self) -> None:
        self._values: Values = np.empty(0, np.uint32)  # ascending
        self._counts: npt.NDArray[np.uint32] = np.empty(0, np.uint32)
        self._waiting: list[Values] = []
        self._num_waiting = 0

    def add(self, values: Values) -> None:
        self._waiting.append(values)
        self._num_waiting += len(values)
        if self._num_waiting >= GATHERED:
            self._count()

    def frequent(self, min_count: int) -> Values:
        """The values that occur at least this often, ascending."""
        self._count()
        return self._values[self._counts >= min_count]

    def _count(self) -> None:
        values, counts = np.unique(np.concatenate([self._values, *self._waiting]), return_counts=True)
        counts[np.searchsorted(values, self._values)] += self._counts - 1  # each known value was there once more
        self._values, self._counts = values, counts.astype(np.uint32)
        self._waiting, self._num_waiting = [], 0
