"""pytest test_mine.py"""

import pytest
import torch
from mine import Mine


@pytest.mark.parametrize("train", [True, False])
def test_a_sample_is_an_image_and_its_class(train: bool) -> None:
    data = Mine(train, num_samples=100, noise=0.5)
    assert len(data) == 100
    for index in range(100):
        image, label = data[index]
        assert (image.shape, image.dtype) == ((1, 8, 8), torch.float32)
        assert 0 <= label < 10


def test_it_is_the_same_every_time_and_nothing_of_it_is_both_trained_on_and_tested() -> None:
    first, again, test = (Mine(train, num_samples=20, noise=0.5) for train in (True, True, False))
    assert torch.equal(first.images, again.images)
    assert not (first.images[:, None] == test.images).flatten(2).all(2).any()


def test_a_data_set_without_samples_is_refused() -> None:
    with pytest.raises(ValueError, match=r"dataset\.num_samples must be >= 1, got 0"):
        Mine(train=True, num_samples=0, noise=0.5)
