"""Random streams keyed by what they are for: no two uses share one, and the order of asking does not matter."""

from enum import IntEnum

import numpy as np


class Purpose(IntEnum):
    """The first word of a stream's key."""

    SPLIT = 1  # samples to workers
    SHUFFLE = 2  # one worker's order in one epoch
    TRAIN_GLYPHS = 3
    TEST_GLYPHS = 4
    AUGMENT = 5  # one worker's crops and flips in one iteration
    NOISE = 6  # what a network itself leaves to chance in one worker's iteration
    SQUAD_SPLIT = 20  # articles to training and test
    TRAIN_QUESTIONS = 21  # of qa_synthetic
    TEST_QUESTIONS = 22


def stream(purpose: Purpose, first: int, second: int, seed: int) -> np.random.Generator:
    """A fresh generator (Philox) for this key; `first` and `second` in 0 .. 2^32 - 1, `seed` >= 0 of any length."""
    # The seed comes last: it alone may be longer than one 32-bit word, so different keys give different words.
    return np.random.Generator(np.random.Philox(np.random.SeedSequence((int(purpose), first, second, seed))))
