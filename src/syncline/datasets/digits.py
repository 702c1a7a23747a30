"""Handwritten digits of 8x8 pixels that come with scikit-learn: real data without a download."""

from functools import cache
from pathlib import Path

import numpy as np
import torch

from syncline.datasets.files import digits_file
from syncline.datasets.images import ImageDataset, channel_statistics
from syncline.datasets.labelled import Labelled

TEST_SIZE = 360
# A fixed order of the images, the last TEST_SIZE for testing: the split belongs to the data set, not to a run.
# It is that of scikit-learn's train_test_split(range(1797), test_size=360, stratify=<labels>, random_state=0).
ORDER = Path(__file__).with_name("digits-order.txt")


def digits() -> ImageDataset:
    """1,437 training and 360 test images, uint8 [N, 1, 8, 8], ten classes, stratified and shuffled in a fixed order.

    Source: Alpaydin and Kaynak 1998, "Optical recognition of handwritten digits" (UCI), test part, as in scikit-learn's
    load_digits. Its grey values 0..16 are scaled to 0..255.
    """
    table = _table(digits_file())
    images = (table[:, :-1] * (255 / 16)).round().to(torch.uint8).view(-1, 1, 8, 8)
    whole = Labelled(images, table[:, -1].long())
    train, test = whole.chosen(slice(-TEST_SIZE)), whole.chosen(slice(-TEST_SIZE, None))
    return ImageDataset("digits", train, test, 10, *channel_statistics(train.samples))


@cache
def _table(path: Path) -> torch.Tensor:
    """The rows of the file in ORDER: 64 grey values and the digit. Read once for all runs of a process."""
    order = np.array(ORDER.read_text().split(), dtype=np.int64)
    return torch.from_numpy(np.loadtxt(path, delimiter=",")[order])
