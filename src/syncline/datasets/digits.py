"""Handwritten digits of 8x8 pixels that come with scikit-learn: real data without a download."""

import numpy as np
import torch

from syncline.datasets.images import ImageDataset, channel_statistics, take

TEST_SIZE = 360
SPLIT_SEED = 0  # fixed: the split belongs to the dataset, not to a run


def digits(train_size: int | None = None, test_size: int | None = None) -> ImageDataset:
    """1,437 training and 360 test images, uint8 [N, 1, 8, 8], ten classes, stratified and shuffled once for all.

    Args:
        train_size: the first so many training images, 1..1437; None for all.
        test_size: the same of the test images, 1..360.

    Raises:
        ValueError: a size out of range.

    Source: Alpaydin and Kaynak 1998, "Optical recognition of handwritten digits" (UCI), test part, as in scikit-learn's
    load_digits. Its grey values 0..16 are scaled to 0..255.
    """
    # Imported here: scikit-learn takes more than a second, which runs on other data need not wait for.
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    bunch = load_digits()
    images = torch.from_numpy(np.rint(bunch.images * (255 / 16)).astype(np.uint8)).unsqueeze(1)
    labels = torch.from_numpy(bunch.target.astype(np.int64))
    train, test = train_test_split(
        np.arange(len(labels)), test_size=TEST_SIZE, stratify=bunch.target, random_state=SPLIT_SEED
    )
    mean, std = channel_statistics(images[train])
    whole = ImageDataset("digits", images[train], labels[train], images[test], labels[test], 10, mean, std)
    return take(whole, train_size, test_size)
