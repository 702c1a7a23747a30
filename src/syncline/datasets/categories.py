"""Maps the values of categorical fields to rows of one joint embedding table.

Legend: N values of one field. Every field has its own row for a missing value.
"""

import numpy as np
import numpy.typing as npt

Values = npt.NDArray[np.uint32]
Mask = npt.NDArray[np.bool_]
Rows = npt.NDArray[np.int32]

GOLDEN = 0x9E3779B9  # 2^32 / golden ratio: keeps the keys of fields far apart


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


def hashed_rows(field: int, values: Values, missing: Mask, buckets: int) -> Rows:
    """int32 [N]: rows of the joint table for these values of a field; `values` counts for nothing where missing.

    Values are hashed into buckets, >= 2 of each field: the size of the table is known in advance, and some values share
    a row. Row 0 of a field is for a missing value, rows 1 .. buckets - 1 for the others.
    """
    # Keyed by the field, so that values that collide in one field do not in another.
    key = np.uint32((field + 1) * GOLDEN & 0xFFFFFFFF)
    bucket = 1 + mix(values ^ key) % np.uint32(buckets - 1)
    rows: Rows = np.where(missing, 0, bucket).astype(np.int32) + np.int32(field * buckets)
    return rows
