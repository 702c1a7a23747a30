"""ImageDataset rejects invalid fields; statistics of channels."""

from typing import Any

import numpy as np
import pytest
import torch

from syncline.datasets.images import ImageDataset, channel_statistics
from syncline.datasets.labelled import Labelled


def part(*labels: int, images: int | None = None) -> Labelled[torch.Tensor]:
    num = len(labels) if images is None else images
    return Labelled(torch.zeros(num, 2, 3, 3, dtype=torch.uint8), torch.tensor(labels, dtype=torch.int64))


RIGHT: dict[str, Any] = {"train": part(0, 1, 2, 0, 1), "test": part(2, 0), "std": (1.0, 2.0)}


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"train": part(0, 0, 0, 0, images=5)}, r"train part: labels must be \[5\], got \[4\]"),
        ({"train": part(0, 1, 3, 0, 0)}, r"train part: labels must lie in 0\.\.2, got 0\.\.3"),
        ({"test": part(0, -1)}, r"test part: labels must lie in 0\.\.2, got -1\.\.0"),
        ({"test": part()}, "test part: no images"),
        ({"std": (1.0, 0.0)}, "std must be > 0"),
    ],
)
def test_a_faulty_field_is_named_in_one_line(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        ImageDataset(name="toy", num_classes=3, mean=(1.0, 2.0), **RIGHT | changed)
    assert "toy" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_statistics_are_those_of_numpy() -> None:
    images = torch.from_numpy(np.random.default_rng(0).integers(0, 256, (40, 3, 5, 7), np.uint8))
    mean, std = channel_statistics(images)
    assert mean == pytest.approx(images.numpy().mean(axis=(0, 2, 3)))
    assert std == pytest.approx(images.numpy().std(axis=(0, 2, 3)))
