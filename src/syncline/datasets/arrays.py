"""Arrays of the user's own, from one .npz file. Legend: N samples for training, M for the test, B of a batch."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from syncline.datasets.batch_source import IGNORED_LABEL, BatchSource
from syncline.datasets.errors import DataMissingError
from syncline.datasets.images import ImageDataset, LabelledSource, Normalise, channel_statistics
from syncline.datasets.labelled import Labelled, LabelledDataset
from syncline.datasets.npz import KEYS, read_npz
from syncline.shapes import ArrayShape, ImageShape

CHANNELS = (1, 3, 4)
FEW = 20  # classes, of each of which a single sample may do


def arrays(root: str, path: str, num_classes: int | None = None) -> "ArrayDataset | ImageDataset":
    """The arrays x_train, y_train, x_test and y_test of an .npz file.

    Pixels, uint8 [N, H, W], [N, C, H, W] or [N, H, W, C], are normalised by channel as the images of other data sets
    are. Other samples [N, ...] are taken as they are, as float32 or int64. Whole numbers y [N] >= 0, or IGNORED_LABEL,
    are labels; real numbers y [N, ...] are targets.

    Args:
        root: a folder.
        path: of the file, within it unless it is absolute.
        num_classes: of labels; None: they are 0 .. the largest, all of which occur.

    Raises:
        DataMissingError: there is no such file.
        ValueError: it is no .npz file, lacks a key, has arrays that do not fit each other, or labels that leave gaps.
    """
    file = Path(root, path)
    if not file.is_file():
        raise DataMissingError(f"arrays not found: no {file}; dataset.path=FILE names it, within dataset.root")
    found = read_npz(file)
    _check(str(file), found)
    x_train, y_train, x_test, y_test = (found[key] for key in KEYS)
    is_labelled = y_train.dtype.kind in "biu"
    if is_labelled:
        num_outputs = _num_classes(str(file), y_train, y_test, num_classes)
    else:
        num_outputs = int(np.prod(y_train.shape[1:]))
    if x_train.dtype != np.uint8 or x_train.ndim not in (3, 4):
        train, test = (Labelled(_tensor(x), _tensor(y)) for x, y in ((x_train, y_train), (x_test, y_test)))
    else:
        train, test = (
            Labelled(_channels_first(str(file), x), _tensor(y)) for x, y in ((x_train, y_train), (x_test, y_test))
        )
        mean, std = channel_statistics(train.samples)
        _, _, height, width = train.samples.shape
        has_ignored = bool((y_train < 0).any() or (y_test < 0).any())
        if is_labelled and height == width and not has_ignored:
            return ImageDataset("arrays", train, test, num_outputs, mean, std)
        normalise = Normalise(mean, std, torch.device("cpu"))
        train, test = (Labelled(normalise(images), targets) for images, targets in (train, test))
    sample = train.samples[0]
    shape = shape_of(sample, num_outputs if is_labelled else None) or ArrayShape(sample.shape, num_outputs)
    return ArrayDataset("arrays", train, test, shape)


def shape_of(sample: Tensor, num_classes: int | None) -> ImageShape | None:
    """Of an image of real numbers [C, S, S] with a label; None: it is something else."""
    is_image = sample.ndim == 3 and sample.shape[1] == sample.shape[2] and sample.is_floating_point()
    return ImageShape(sample.shape[0], sample.shape[1], num_classes) if is_image and num_classes else None


def _num_classes(file: str, train: npt.NDArray[Any], test: npt.NDArray[Any], asked: int | None) -> int:
    """Of these labels. Raises ValueError: some numbers are no labels, or it should be asked whether they are."""
    present = np.union1d(train, test)
    present = present[present != IGNORED_LABEL]
    if not len(present):
        raise ValueError(f"{file}: every label is {IGNORED_LABEL}, which is ignored")
    most = int(present[-1])
    if asked is not None and most >= asked:
        raise ValueError(f"{file}: labels must be in 0..{asked - 1} for dataset.num_classes={asked}, got {most}")
    if asked is None and (len(present) <= most or (len(present) > FEW and 2 * len(present) > len(train) + len(test))):
        kinds = f"{len(present):,} different ones in {int(present[0])}..{most} of {len(train):,} samples"
        rule = "whole numbers in y are labels, which must be 0, 1, 2, ..., each of several samples"
        raise ValueError(
            f"{file}: {rule}; got {kinds}: number the classes from 0 on, make y real numbers for task=regression, or "
            f"confirm with dataset.num_classes={most + 1}"
        )
    return asked or most + 1


def _channels_first(file: str, pixels: npt.NDArray[Any]) -> Tensor:
    """uint8 [N, C, H, W], of pixels in any usual layout. Raises ValueError: it is not clear which."""
    if pixels.ndim == 3:
        return torch.from_numpy(pixels[:, None])
    _, first, middle, last = pixels.shape
    usual = {axis for axis in (1, 3) if pixels.shape[axis] in CHANNELS}
    square = {axis for axis, sides in ((1, (middle, last)), (3, (first, middle))) if sides[0] == sides[1]}
    fits = usual & square or usual or square & {1}
    if not fits or (len(fits) > 1 and not fits & square):
        rule = "pixels must be [N, H, W], [N, C, H, W] or [N, H, W, C] with 1, 3 or 4 channels"
        which = "could be both of the last" if fits else "is none"
        raise ValueError(f"{file}: {rule}; got {list(pixels.shape)}, which {which}")
    return torch.from_numpy(pixels if 1 in fits else np.ascontiguousarray(pixels.transpose(0, 3, 1, 2)))


def _check(file: str, found: Mapping[str, npt.NDArray[Any]]) -> None:
    """Raises ValueError: the arrays do not fit each other."""
    for key, array in found.items():
        if array.dtype.kind not in "biuf":
            raise ValueError(f"{file}: {key} must hold numbers, got {array.dtype}")
        if array.ndim == 0 or len(array) == 0:
            raise ValueError(f"{file}: {key} must have at least one sample, got the shape {array.shape}")
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise ValueError(f"{file}: {key} must be finite")
    for part in ("train", "test"):
        x, y = found[f"x_{part}"], found[f"y_{part}"]
        if len(x) != len(y):
            raise ValueError(f"{file}: x_{part} and y_{part} must be equally long, got {len(x)} and {len(y)}")
        if y.dtype.kind in "biu" and (y.ndim > 1 or (y[y != IGNORED_LABEL] < 0).any()):
            rule = "must be labels >= 0, one a sample, or real numbers"
            raise ValueError(f"{file}: y_{part} {rule}; got {y.dtype} {y.shape}, least {y.min()}")
    for name in "xy":
        train, test = found[f"{name}_train"], found[f"{name}_test"]
        if train.shape[1:] != test.shape[1:] or (train.dtype.kind == "f") != (test.dtype.kind == "f"):
            kinds = f"{train.dtype} {train.shape} and {test.dtype} {test.shape}"
            raise ValueError(f"{file}: {name}_train and {name}_test must be alike, got {kinds}")


def _tensor(array: npt.NDArray[Any]) -> Tensor:
    """As float32 or int64."""
    return torch.from_numpy(array.astype(np.float32 if array.dtype.kind == "f" else np.int64))


@dataclass(frozen=True)
class ArrayDataset(LabelledDataset[Tensor]):
    """Samples float32 or int64 [N, ...], and their labels int64 [N] or targets float32 [N, ...], checked."""

    shape: ArrayShape | ImageShape

    def batch_source(self, device: torch.device, task: str) -> BatchSource:
        """Raises ValueError: y is not what the task learns."""
        check_targets(self.name, task, self.train.targets)
        return LabelledSource(self.train, self.test, device)


def check_targets(name: str, task: str, targets: Tensor) -> None:
    """Raises ValueError: these are not what the task learns."""
    wanted = {"classification": (torch.int64, "labels, whole numbers"), "regression": (torch.float32, "real numbers")}
    if task in wanted and targets.dtype != wanted[task][0]:
        other = "regression" if task == "classification" else "classification"
        rule = f"targets must be {wanted[task][1]}, for task={task}; got {targets.dtype}"
        raise ValueError(f"dataset={name}: {rule}, for which there is task={other} or one of your own")
