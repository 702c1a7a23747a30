"""Photographs from file to pixels: torchvision's transforms on the same boxes, and boxes with its distribution."""

import importlib
import random
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from syncline.datasets.decoding import decode, random_box
from syncline.torchvision_compat import import_torchvision

pytestmark = pytest.mark.xdist_group("torchvision")  # which takes seconds to import

if TYPE_CHECKING:
    from PIL import Image

SIDES = st.integers(1, 900)


@pytest.fixture(scope="module")
def transforms() -> ModuleType:
    import_torchvision()  # a torchvision beside a CPU-only torch needs it
    return importlib.import_module("torchvision.transforms")


def photograph(width: int, height: int, seed: int = 0) -> "Image.Image":
    """Smooth enough for JPEG, with something different everywhere."""
    from PIL import Image

    coarse = np.random.default_rng(seed).integers(0, 256, (height // 16 + 2, width // 16 + 2, 3), np.uint8)
    return Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC)


def opened(path: Path) -> "Image.Image":
    from PIL import Image

    return Image.open(path)


def pixels(path: Path, size: int, seed: int | None) -> np.ndarray:
    """[S, S, 3], as Pillow has it."""
    return np.frombuffer(decode(str(path), size, seed), np.uint8).reshape(3, size, size).transpose(1, 2, 0)


@pytest.mark.parametrize(("width", "height"), [(500, 375), (375, 500), (256, 256), (31, 200)])
@pytest.mark.parametrize("size", [224, 32])
def test_evaluation_is_torchvisions_resize_and_center_crop(
    transforms: ModuleType, tmp_path: Path, width: int, height: int, size: int
) -> None:
    photograph(width, height).save(tmp_path / "a.jpeg", quality=90)
    with opened(tmp_path / "a.jpeg") as image:
        theirs = transforms.CenterCrop(size)(transforms.Resize(round(size * 256 / 224))(image))
    np.testing.assert_array_equal(pixels(tmp_path / "a.jpeg", size, None), np.asarray(theirs))


@pytest.mark.parametrize("seed", range(4))
def test_training_is_torchvisions_resized_crop_of_the_drawn_box(
    transforms: ModuleType, tmp_path: Path, seed: int
) -> None:
    photograph(500, 375).save(tmp_path / "a.jpeg", quality=90)
    chance = random.Random(seed)
    left, top, right, bottom = random_box(500, 375, chance)
    is_mirrored = chance.random() < 0.5
    with opened(tmp_path / "a.jpeg") as image:
        theirs = transforms.functional.resized_crop(image, top, left, bottom - top, right - left, [64, 64])
        theirs = transforms.functional.hflip(theirs) if is_mirrored else theirs
    np.testing.assert_array_equal(pixels(tmp_path / "a.jpeg", 64, seed), np.asarray(theirs))


def test_half_of_the_images_are_mirrored(tmp_path: Path) -> None:
    from PIL import Image

    Image.fromarray(np.tile(np.arange(256, dtype=np.uint8), (256, 1))).save(tmp_path / "a.png")  # brighter to the right
    rises = [
        int(image[4, -1, 0]) > int(image[4, 0, 0]) for image in (pixels(tmp_path / "a.png", 8, s) for s in range(200))
    ]
    assert sum(rises) == pytest.approx(100, abs=35)


@given(SIDES, SIDES, st.integers(0, 2**62))
@example(1, 900, 0)
@example(900, 1, 0)
def test_a_box_lies_inside_and_is_neither_too_thin_nor_too_small(width: int, height: int, seed: int) -> None:
    left, top, right, bottom = random_box(width, height, random.Random(seed))
    assert 0 <= left < right <= width
    assert 0 <= top < bottom <= height
    wide, high = right - left, bottom - top
    # A side is rounded by half a pixel.
    assert (wide - 0.5) / (high + 0.5) <= 4 / 3
    assert (wide + 0.5) / (high - 0.5) >= 3 / 4
    if 3 / 4 <= width / height <= 4 / 3:
        assert (wide + 0.5) * (high + 0.5) >= 0.08 * width * height


@pytest.mark.parametrize(("width", "height"), [(400, 20), (20, 400), (299, 400), (401, 300)])
def test_without_a_box_that_fits_the_middle_is_taken_as_by_torchvision(
    transforms: ModuleType, width: int, height: int
) -> None:
    class TooLarge(random.Random):
        def uniform(self, a: float, b: float) -> float:
            return 100.0 if (a, b) == (0.08, 1.0) else 0.0

    # No scale fits a box a hundred times as large as the image, so torchvision falls back to the middle too.
    top, left, high, wide = transforms.RandomResizedCrop.get_params(
        photograph(width, height), [100.0, 100.0], [3 / 4, 4 / 3]
    )
    assert random_box(width, height, TooLarge()) == (left, top, left + wide, top + high)


def test_boxes_have_torchvisions_distribution(transforms: ModuleType) -> None:
    from scipy.stats import ks_2samp

    width, height = 120, 400  # some boxes do not fit
    torch.manual_seed(0)
    image, chance = photograph(width, height), random.Random(0)
    theirs = np.array([transforms.RandomResizedCrop.get_params(image, [0.08, 1], [3 / 4, 4 / 3]) for _ in range(2000)])
    boxes = np.array([random_box(width, height, chance) for _ in range(2000)])
    ours = np.stack([boxes[:, 1], boxes[:, 0], boxes[:, 3] - boxes[:, 1], boxes[:, 2] - boxes[:, 0]], axis=1)
    for measure in (lambda b: b[:, 0], lambda b: b[:, 1], lambda b: b[:, 2] * b[:, 3], lambda b: b[:, 2] / b[:, 3]):
        assert ks_2samp(measure(ours), measure(theirs)).pvalue > 0.001


@pytest.mark.parametrize("mode", ["L", "CMYK", "RGBA", "P"])
def test_every_kind_of_file_gives_three_colours(tmp_path: Path, mode: str) -> None:
    path = tmp_path / ("a.jpeg" if mode in ("L", "CMYK") else "a.png")
    photograph(40, 30).convert(mode).save(path)
    assert len(decode(str(path), 16, None)) == len(decode(str(path), 16, 1)) == 3 * 16 * 16


@pytest.mark.parametrize("fault", ["text", "cut off", "absent"])
def test_a_file_that_cannot_be_decoded_is_named(tmp_path: Path, fault: str) -> None:
    path = tmp_path / "a.jpeg"
    if fault == "text":
        path.write_text("no photograph")
    elif fault == "cut off":
        photograph(200, 200).save(path)
        path.write_bytes(path.read_bytes()[:-300])
    with pytest.raises(ValueError, match="not a readable image") as caught:
        decode(str(path), 16, None)
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)
