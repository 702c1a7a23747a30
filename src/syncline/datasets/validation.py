"""Which training samples are held out for validation (`dataset.validation`): hyperparameters are chosen by these."""

import numpy as np
import numpy.typing as npt

from syncline.datasets.streams import Purpose, stream

Indices = npt.NDArray[np.int64]


def num_held_out(num: int, share: float) -> int:
    """How many of `num` samples are held out: the nearest number to the share, at least 1."""
    return max(1, round(num * share))


def split(num: int, share: float) -> tuple[Indices, Indices]:
    """The samples that stay for training and those that are held out, both ascending.

    Which ones are held out is drawn once, the same for every run.

    Args:
        num: of training samples, >= 2.
        share: of them that is held out, in (0, 1).

    Raises:
        ValueError: none would be left for training.
    """
    held = num_held_out(num, share)
    if held >= num:
        raise ValueError(f"dataset.validation={share:g} of {num} training samples leaves none for training")
    order = stream(Purpose.VALIDATION, 0, 0, 0).permutation(num)
    return np.sort(order[held:]), np.sort(order[:held])
