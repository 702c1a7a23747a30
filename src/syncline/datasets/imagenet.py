"""ImageNet in torchvision's folder layout, decoded when needed. Legend: N photographs, B batch, S pixels a side."""

import os
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from syncline.datasets.batch_source import Batch
from syncline.datasets.decoding import decode
from syncline.datasets.errors import DataMissingError
from syncline.datasets.images import Normalise
from syncline.datasets.labelled import Labelled, LabelledDataset
from syncline.shapes import ImageShape

Pixels = npt.NDArray[np.uint8]

ENDINGS = (".jpeg", ".jpg", ".png")
# Of the training images, in units of 0..255: the customary values.
MEAN, STD = (0.485 * 255, 0.456 * 255, 0.406 * 255), (0.229 * 255, 0.224 * 255, 0.225 * 255)
TEST_BATCH = 100
MOST_AHEAD = 4  # limit of prefetched batches


@dataclass(frozen=True)
class Photographs(LabelledDataset[npt.NDArray[Any]]):
    """Files, bytes [N] with their full paths, and labels int64 [N], a folder a class."""

    classes: tuple[str, ...]  # folder names, sorted; a label is an index of it
    image_size: int  # S, of the batches
    loaders: int  # threads that decode; 0: the one that takes a batch
    augment: bool = False  # training images are random boxes, mirrored at random

    @property
    def shape(self) -> ImageShape:
        return ImageShape(3, self.image_size, len(self.classes))

    def batch_source(self, device: torch.device, task: str) -> "PhotographSource":
        """Mini-batches on the device for `task`, which is classification."""
        assert task == "classification"
        return PhotographSource(self, device)


class PhotographSource:
    """Images float32 [B, 3, S, S], normalised, and labels int64 [B]; decoded by `loaders` threads, ahead of time."""

    def __init__(self, dataset: Photographs, device: torch.device) -> None:
        self.is_random = dataset.augment
        self._dataset, self._device = dataset, device
        self._normalise = Normalise(MEAN, STD, device)
        self._threads = ThreadPoolExecutor(max(1, dataset.loaders), thread_name_prefix="loader")
        self._ahead: dict[bytes, Callable[[], Pixels]] = {}  # prefetched batches, by indices and seeds
        # No thread is awaited: garbage collection calls this in any thread.
        weakref.finalize(self, self._threads.shutdown, wait=False, cancel_futures=True)

    def take(self, indices: npt.NDArray[np.int64], generator: np.random.Generator | None) -> Batch:
        """Randomness enters as one seed an image, independent of the thread that decodes it, and when.

        Raises:
            ValueError: a file that cannot be decoded.
        """
        seeds = self._seeds(indices, generator)
        files, labels = self._dataset.train.chosen(indices)
        pixels = self._ahead.pop(_key(indices, seeds), None) or self._begin(files, seeds)
        return self._batch(pixels(), labels)

    def prefetch(self, indices: npt.NDArray[np.int64], generator: np.random.Generator | None) -> None:
        """Start to decode a batch that will be taken soon; it need not be taken, and `take` gives the same bits.

        Args:
            indices: as later passed to `take`.
            generator: in the same state as later passed to `take`; consumed.
        """
        if self._dataset.loaders and len(self._ahead) < MOST_AHEAD:
            seeds = self._seeds(indices, generator)
            key = _key(indices, seeds)
            if key not in self._ahead:
                self._ahead[key] = self._begin(self._dataset.train.samples[indices], seeds)

    def test(self) -> Iterator[Batch]:
        files, labels = self._dataset.test
        starts = range(0, len(files), TEST_BATCH)
        batches = [slice(start, start + TEST_BATCH) for start in starts]
        coming = self._begin(files[batches[0]], None)
        for batch, following in zip(batches, [*batches[1:], None], strict=True):
            pixels = coming()
            if following is not None:
                coming = self._begin(files[following], None)
            yield self._batch(pixels, labels[batch])

    def _seeds(self, indices: npt.NDArray[np.int64], generator: np.random.Generator | None) -> list[int] | None:
        if generator is None or not self.is_random:
            return None
        return [int(seed) for seed in generator.integers(2**62, size=len(indices))]

    def _begin(self, files: npt.NDArray[np.bytes_], seeds: list[int] | None) -> Callable[[], Pixels]:
        """Start to decode; the function returned waits for the images, [B, 3, S, S]."""
        size = self._dataset.image_size
        pixels = np.empty((len(files), 3, size, size), np.uint8)

        def decode_one(number: int) -> None:
            image = decode(os.fsdecode(files[number]), size, None if seeds is None else seeds[number])
            pixels[number] = np.frombuffer(image, np.uint8).reshape(pixels.shape[1:])

        numbers = range(len(files))
        parts = self._threads.map(decode_one, numbers) if self._dataset.loaders else map(decode_one, numbers)

        def finish() -> Pixels:
            for _ in parts:
                pass
            return pixels

        return finish

    def _batch(self, pixels: Pixels, labels: npt.NDArray[np.int64]) -> Batch:
        return self._normalise(torch.from_numpy(pixels).to(self._device)), torch.from_numpy(labels).to(self._device)


def _key(indices: npt.NDArray[np.int64], seeds: list[int] | None) -> bytes:
    return indices.tobytes() + repr(seeds).encode()


def imagenet(root: str, num_classes: int = 1000, image_size: int = 224, loaders: int = 2) -> Photographs:
    """Photographs in `<root>/imagenet/train/<class>/` and `<root>/imagenet/val/<class>/`.

    Classes are numbered in the order of their names. Photographs alternate between the classes (the first of each, the
    second of each, ...), so that the first so many are balanced. The validation images serve as the test set: the real
    one is not public.

    Args:
        root: the folder to look in.
        num_classes: number of folders that must exist; fewer for a subset of the classes.
        image_size: S >= 1; usually 224, for Inception v3 299.
        loaders: threads that decode, >= 0; with 0 the one that takes a batch.

    Raises:
        DataMissingError: a folder is missing or has no images.
        ValueError: another number of classes, or others in training than in validation.

    Source: Russakovsky et al. 2015, "ImageNet large scale visual recognition challenge"; layout as torchvision's
    ImageFolder.
    """
    folder = Path(root) / "imagenet"
    classes, train = _listing(folder / "train")
    test_classes, test = _listing(folder / "val")
    if classes != test_classes:
        odd = min(set(classes) ^ set(test_classes))
        raise ValueError(f"{folder}: train and val must hold the same classes, but {odd} is in one of them only")
    if len(classes) != num_classes:
        raise ValueError(f"{folder}: train holds {len(classes)} classes, dataset.num_classes={num_classes}")
    return Photographs("imagenet", train, test, classes, image_size, loaders)


def _listing(folder: Path) -> tuple[tuple[str, ...], Labelled[npt.NDArray[Any]]]:
    """Classes, and files with labels, of train/ or val/."""
    try:
        with os.scandir(folder) as entries:
            classes = tuple(sorted(entry.name for entry in entries if entry.is_dir()))
        rows = [_images(folder / name) for name in classes]
    except FileNotFoundError:
        classes, rows = (), []
    if not any(rows):
        raise DataMissingError(
            f"imagenet not found: {folder} must hold a folder for each class with its images "
            f"({', '.join(ENDINGS)}); image-net.org gives them to who registers there; "
            "dataset.root=FOLDER or SYNCLINE_DATA=FOLDER says where the folder imagenet is"
        )
    labels = np.repeat(np.arange(len(rows)), [len(row) for row in rows])
    places = np.concatenate([np.arange(len(row)) for row in rows])
    order = np.lexsort((labels, places))  # by position in the class, then by class
    files = np.array([file for row in rows for file in row])
    return classes, Labelled(files, labels).chosen(order)


def _images(folder: Path) -> list[bytes]:
    with os.scandir(os.fsencode(folder)) as entries:
        return sorted(entry.path for entry in entries if os.fsdecode(entry.name).lower().endswith(ENDINGS))
