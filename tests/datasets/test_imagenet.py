"""ImageNet's layout on generated photographs: order, equal bits with any loaders, and no thread left behind."""

import gc
import os
import shutil
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from leaks import nothing_left

from syncline.datasets.decoding import decode
from syncline.datasets.errors import DataMissingError
from syncline.datasets.imagenet import MEAN, MOST_AHEAD, STD, Photographs, PhotographSource, imagenet
from syncline.datasets.labelled import Labelled
from syncline.shapes import ImageShape

CPU = torch.device("cpu")
CLASSES = ("n01440764", "n01443537", "n02084071")
TRAIN, VAL = (7, 4, 5), (3, 3, 2)  # photographs of each class
SIZE = 24


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from PIL import Image

    folder = tmp_path_factory.mktemp("data")
    random = np.random.default_rng(0)
    for part, counts in (("train", TRAIN), ("val", VAL)):
        for name, count in zip(CLASSES, counts, strict=True):
            (folder / "imagenet" / part / name).mkdir(parents=True)
            for i in range(count):
                coarse = Image.fromarray(random.integers(0, 256, (4, 5, 3), np.uint8))
                photograph = coarse.resize((60 + 7 * i, 80 - 5 * i), Image.Resampling.BICUBIC)
                photograph.save(folder / "imagenet" / part / name / f"{name}_{i}.JPEG")
    (folder / "imagenet" / "train" / ".DS_Store").write_text("not a class")
    (folder / "imagenet" / "train" / CLASSES[0] / "notes.txt").write_text("not a photograph")
    return folder


def load(root: Path, loaders: int = 0, augment: bool = True) -> Photographs:
    return replace(imagenet(str(root), len(CLASSES), SIZE, loaders), augment=augment)


@pytest.fixture(scope="module")
def plain(root: Path) -> PhotographSource:
    return load(root).batch_source(CPU, "classification")


@pytest.fixture(scope="module")
def helped(root: Path) -> PhotographSource:
    """By two loaders, the same ones for all tests."""
    return load(root, 2).batch_source(CPU, "classification")


def names(files: np.ndarray) -> list[str]:
    return [Path(os.fsdecode(file)).name for file in files]


def decoded(files: np.ndarray, seeds: list[int] | None = None) -> torch.Tensor:
    """One at a time in this process, normalised."""
    images = [decode(os.fsdecode(file), SIZE, seeds[i] if seeds else None) for i, file in enumerate(files)]
    pixels = np.frombuffer(b"".join(images), np.uint8).reshape(-1, 3, SIZE, SIZE)
    mean, std = (torch.tensor(values).view(1, 3, 1, 1) for values in (MEAN, STD))
    return (torch.from_numpy(pixels.copy()).float() - mean) / std


def test_classes_are_numbered_by_name_and_alternate(root: Path) -> None:
    dataset = load(root)
    assert dataset.classes == CLASSES
    assert dataset.shape == ImageShape(3, SIZE, 3)
    assert dataset.num_train == sum(TRAIN)
    turns = [(i, c) for i in range(max(TRAIN)) for c in range(3) if i < TRAIN[c]]
    assert names(dataset.train.samples) == [f"{CLASSES[c]}_{i}.JPEG" for i, c in turns]
    assert dataset.train.targets.tolist() == [c for _, c in turns]
    assert np.bincount(dataset.test.targets).tolist() == list(VAL)
    assert np.bincount(dataset.first(6, 3).train.targets).tolist() == [2, 2, 2]


@pytest.mark.parametrize("source", ["plain", "helped"])
def test_a_batch_is_what_decoding_gives(root: Path, source: str, request: pytest.FixtureRequest) -> None:
    dataset, taken = load(root), request.getfixturevalue(source)
    index = np.array([3, 15, 3, 0, *range(16)])
    images, labels = taken.take(index, np.random.default_rng(5))
    seeds = np.random.default_rng(5).integers(2**62, size=len(index)).tolist()
    assert taken.is_random
    assert torch.equal(images, decoded(dataset.train.samples[index], seeds))
    assert labels.tolist() == dataset.train.targets[index].tolist()
    assert not torch.equal(images[0], images[2])  # the same photograph, another box
    assert torch.equal(taken.take(index, None)[0], decoded(dataset.train.samples[index]))


def test_without_augmentation_photographs_are_decoded_as_for_the_test(root: Path) -> None:
    dataset = load(root, augment=False)
    source = dataset.batch_source(CPU, "classification")
    assert not source.is_random
    images, _ = source.take(np.arange(5), np.random.default_rng(0))
    assert torch.equal(images, decoded(dataset.train.samples[:5]))


def test_the_test_set_is_complete_and_in_order(
    root: Path, helped: PhotographSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("syncline.datasets.imagenet.TEST_BATCH", 3)
    dataset = load(root)
    for _ in range(2):
        batches = list(helped.test())
        assert [len(labels) for _, labels in batches] == [3, 3, 2]
        assert torch.cat([labels for _, labels in batches]).tolist() == dataset.test.targets.tolist()
        assert torch.equal(torch.cat([images for images, _ in batches]), decoded(dataset.test.samples))


def test_what_was_prefetched_is_taken_with_the_same_bits_in_any_order(
    plain: PhotographSource, helped: PhotographSource
) -> None:
    batches = [np.array([1, 2, 3, 4]), np.array([4, 3, 2, 1]), np.arange(16)]

    def generator(number: int) -> np.random.Generator:
        return np.random.default_rng(number)

    for number, indices in enumerate(batches):
        helped.prefetch(indices, generator(number))
        helped.prefetch(indices, generator(number))  # once more
    for number in (2, 0, 0, 1, 7):  # the second 0 was not prefetched again, 7 never
        indices = batches[number % 3]
        expected, _ = plain.take(indices, generator(number))
        assert torch.equal(helped.take(indices, generator(number))[0], expected)


def test_prefetched_photographs_are_decoded_before_they_are_taken(root: Path, tmp_path: Path) -> None:
    """Their files may be deleted by then; those of a batch that exceeds the memory limit are read when taken."""
    dataset = load(root, 1)
    copies = [Path(shutil.copy(os.fsdecode(file), tmp_path)) for file in dataset.train.samples[:4]]
    files = np.array([os.fsencode(path) for path in copies])
    source = replace(dataset, train=Labelled(files, np.zeros(4, int))).batch_source(CPU, "classification")
    for number in range(MOST_AHEAD + 1):
        source.prefetch(np.arange(4), np.random.default_rng(number))
    source.take(np.arange(4), np.random.default_rng(MOST_AHEAD - 1))  # in order: the earlier ones are there too
    for path in copies:
        path.unlink()
    for number in range(MOST_AHEAD - 1):
        source.take(np.arange(4), np.random.default_rng(number))
    with pytest.raises(ValueError, match="No such file"):
        source.take(np.arange(4), np.random.default_rng(MOST_AHEAD))


def test_a_photograph_that_a_loader_cannot_read_is_named_and_the_others_still_arrive(
    root: Path, tmp_path: Path
) -> None:
    dataset, broken = load(root, 1), tmp_path / "broken.JPEG"
    files = dataset.train.samples.tolist()
    broken.write_bytes(Path(os.fsdecode(files[9])).read_bytes()[:200])
    files[9] = os.fsencode(broken)
    train = Labelled(np.array(files), dataset.train.targets)
    source = replace(dataset, train=train).batch_source(CPU, "classification")
    with pytest.raises(ValueError, match="not a readable image") as caught:
        source.take(np.arange(16), np.random.default_rng(0))
    assert str(caught.value).startswith(f"{broken}: ")
    assert "\n" not in str(caught.value)
    assert len(source.take(np.arange(9), np.random.default_rng(0))[0]) == 9


def test_loaders_end_with_their_source(root: Path) -> None:
    with nothing_left():
        source = load(root, 2).batch_source(CPU, "classification")
        source.take(np.arange(16), None)
        assert sum(thread.name.startswith("loader") for thread in threading.enumerate()) >= 2
        source.prefetch(np.arange(16), None)
        del source
        gc.collect()


def listed(folder: Path, *classes: str) -> None:
    """A folder for each class, with a photograph that nobody opens."""
    for name in classes:
        (folder / name).mkdir(parents=True)
        (folder / name / "1.JPEG").touch()


def test_a_part_without_photographs_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "imagenet"
    (folder / "train" / CLASSES[0]).mkdir(parents=True)
    with pytest.raises(DataMissingError, match=rf"{folder}/train must hold a folder for each class"):
        imagenet(str(tmp_path))
    listed(folder / "train", *CLASSES[1:])
    with pytest.raises(DataMissingError, match=rf"{folder}/val must hold a folder for each class"):
        imagenet(str(tmp_path))


def test_other_classes_than_those_asked_for_are_refused(tmp_path: Path) -> None:
    listed(tmp_path / "imagenet" / "train", *CLASSES)
    listed(tmp_path / "imagenet" / "val", *CLASSES[:2], "n09999999")
    with pytest.raises(ValueError, match=r"same classes, but n02084071 is in one of them only$"):
        imagenet(str(tmp_path))
    listed(tmp_path / "imagenet" / "val", CLASSES[2])
    listed(tmp_path / "imagenet" / "train", "n09999999")
    with pytest.raises(ValueError, match=r"train holds 4 classes, dataset.num_classes=1000$"):
        imagenet(str(tmp_path))
