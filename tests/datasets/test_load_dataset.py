"""The table of datasets and their options; what all loaders refuse; what all generated ones keep."""

import inspect
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from syncline.config.datasets import DATASETS as OPTIONS
from syncline.datasets.errors import DataMissingError
from syncline.datasets.images import ImageDataset
from syncline.datasets.registry import DATASETS, SIZED, load
from syncline.datasets.wordpiece import SPECIAL


@pytest.mark.parametrize("name", sorted(DATASETS))
def test_each_config_gives_its_loader_every_option(name: str) -> None:
    path = {"path": "mine"} if name in ("arrays", "text", "tokens") else {}
    path |= {"test_path": "others"} if name == "tokens" else {}
    options = OPTIONS[name](name=name, **path).loader_options()
    assert options.pop("name") == name
    sizes = set() if name in SIZED else {"train_size", "test_size"}
    assert set(options) - sizes == set(inspect.signature(DATASETS[name]).parameters)


ABSENT: dict[str, tuple[dict[str, Any], list[str]]] = {  # options, and what the line names
    "billion": ({}, ["/training-monolingual.tokenized.shuffled/news.en-*", "statmt.org"]),
    "cifar100": ({}, ["/cifar100.npz", "/cifar-100-python", "dataset.download=true"]),
    "criteo": ({}, ["/criteo/train.txt", "/train.txt", "ailab.criteo.com"]),
    "imagenet": ({}, ["/imagenet/train", "a folder for each class"]),
    "mnist": ({}, ["/mnist.npz", "/MNIST/raw", "dataset.download=true"]),
    "ptb": ({}, ["/ptb.train.txt;", "dataset.download=true"]),
    "squad": ({"vocab": "vocab.txt"}, ["/train-v1.1.json", "dataset.download=true"]),
    "text": ({"path": "nothing"}, ["/nothing;"]),
    "tokens": ({"path": "train.bin", "test_path": "val.bin", "vocab_size": 9}, ["/train.bin;"]),
    "text8": ({}, ["/text8;", "dataset.download=true"]),
}


@pytest.mark.parametrize("name", ABSENT)
def test_absent_files_are_named_with_the_ways_out(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options, parts = ABSENT[name]
    (tmp_path / "vocab.txt").write_text("\n".join(SPECIAL))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataMissingError) as caught:
        load(name, root=str(tmp_path / "data"), **options)
    said = str(caught.value)
    assert "\n" not in said
    for part in [*parts, str(tmp_path / "data"), "dataset.root=", "SYNCLINE_DATA"]:
        assert part in said


GENERATED: dict[str, tuple[int, dict[str, int]]] = {  # samples, over more than one block; further options
    "ctr_synthetic": (1500, {}),
    "glyphs10": (150, {"image_size": 8}),
    "glyphs100": (150, {"image_size": 8}),
    "mnist_digits": (150, {}),
    "qa_synthetic": (50, {}),
}


@pytest.mark.parametrize("name", GENERATED)
def test_generated_data_follow_from_the_arguments_and_a_larger_set_begins_alike(name: str) -> None:
    size, options = GENERATED[name]

    def first(seed: int, more: int) -> list[torch.Tensor]:
        """The columns of the first training samples, and of the first ones of the test."""
        np.random.seed(more)
        torch.manual_seed(more)
        dataset = load(name, train_size=size + more, test_size=size + more, seed=seed, **options)
        if isinstance(dataset, ImageDataset):  # whose batches depend on the mean of all
            return [column[:size] for column in (*dataset.train, *dataset.test)]
        source = dataset.batch_source(torch.device("cpu"), OPTIONS[name].tasks[0])
        return [*source.take(np.arange(size), None), *(column[:20] for column in next(iter(source.test())))]

    found, larger, other = first(3, 0), first(3, 100), first(4, 0)
    assert all(torch.equal(one, same) for one, same in zip(found, larger, strict=True))
    assert not all(torch.equal(one, another) for one, another in zip(found, other, strict=True))
