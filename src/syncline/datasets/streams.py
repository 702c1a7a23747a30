"""Random streams keyed by their purpose: no two uses share one, and the order of their creation does not matter."""

import random
from enum import IntEnum

import numpy as np


class Purpose(IntEnum):
    """The first word of a stream's key."""

    SPLIT = 1  # samples to workers
    SHUFFLE = 2  # one worker's order in one epoch
    TRAIN_GLYPHS = 3
    TEST_GLYPHS = 4
    AUGMENT = 5  # of one worker's mini-batch of one iteration: crops and flips, binarisation
    NOISE = 6  # random numbers inside a network in one worker's iteration
    BINARISE_TEST = 7
    TRAIN_DRAWN_DIGITS = 8
    TEST_DRAWN_DIGITS = 9
    CLICK_MACHINE = 10  # the factorisation machine of the clicks
    TRAIN_CLICKS = 11
    TEST_CLICKS = 12
    SQUAD_SPLIT = 13  # articles to training and test
    TRAIN_QUESTIONS = 14  # of qa_synthetic
    TEST_QUESTIONS = 15
    VALIDATION = 16  # training samples that are held out
    COMPRESS = 17  # random choices of one worker's compression in one push
    COMPRESS_PULLS = 18  # of the compression of one block that a worker pulls
    PEER = 19  # with whom a worker averages after one of its gradients


def stream(purpose: Purpose, first: int, second: int, seed: int) -> np.random.Generator:
    """A new generator (Philox) for this key; `first` and `second` in 0 .. 2^32 - 1, `seed` >= 0 of any length."""
    # The seed comes last: it alone may be longer than one 32-bit word, so different keys give different words.
    return np.random.Generator(np.random.Philox(np.random.SeedSequence((int(purpose), first, second, seed))))


def seed_global_generators(seed: int) -> None:
    """Seed the global generators of torch, NumPy and Python, from which code that is not ours may draw.

    Args:
        seed: in 0 .. 2^64 - 1.
    """
    import torch  # not needed by times alone

    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.manual_seed(seed)
    else:  # a hundred times as fast
        torch.default_generator.manual_seed(seed)
    np.random.seed(seed % 2**32)
    random.seed(seed)
