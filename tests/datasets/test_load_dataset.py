"""The table of datasets and their options; what all loaders refuse."""

import inspect
from pathlib import Path
from typing import Any

import pytest

from syncline.config.datasets import DATASETS as OPTIONS
from syncline.datasets.errors import DataMissingError
from syncline.datasets.registry import DATASETS, load
from syncline.datasets.wordpiece import SPECIAL


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(
        ValueError, match=r"^unknown dataset 'svhn'; choose one of arrays, billion, cifar10, .*digits, glyphs10"
    ):
        load("svhn")


@pytest.mark.parametrize("name", sorted(DATASETS))
def test_each_config_gives_its_loader_every_option(name: str) -> None:
    path = {"path": "mine"} if name in ("arrays", "text") else {}
    options = OPTIONS[name](name=name, **path).loader_options()
    assert options.pop("name") == name
    assert set(options) == set(inspect.signature(DATASETS[name]).parameters)


ABSENT: dict[str, tuple[dict[str, Any], list[str]]] = {  # options, and what the line names
    "billion": ({}, ["/training-monolingual.tokenized.shuffled/news.en-*", "statmt.org"]),
    "cifar100": ({}, ["/cifar100.npz", "/cifar-100-python", "dataset.download=true"]),
    "criteo": ({}, ["/criteo/train.txt", "/train.txt", "ailab.criteo.com"]),
    "imagenet": ({}, ["/imagenet/train", "a folder for each class"]),
    "mnist": ({}, ["/mnist.npz", "/MNIST/raw", "dataset.download=true"]),
    "ptb": ({}, ["/ptb.train.txt;", "dataset.download=true"]),
    "squad": ({"vocab": "vocab.txt"}, ["/train-v1.1.json", "dataset.download=true"]),
    "text": ({"path": "nothing"}, ["/nothing;"]),
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


OUT_OF_RANGE: dict[str, list[tuple[str, Any]]] = {
    "criteo": [
        *[("vocabulary", "all"), ("buckets", 1), ("buckets", (1 << 26) + 1), ("min_count", 0)],
        *[("split_seed", -1), ("split_seed", 1 << 32)],
    ],
    "ctr_synthetic": [("train_size", 0), ("test_size", 0), ("seed", -1), ("values", 1)],
    "glyphs10": [("train_size", 0), ("test_size", 0), ("seed", -1), ("image_size", 7)],
    "glyphs100": [("label_noise", share) for share in (-0.1, 1.0, float("nan"))],
    "imagenet": [("image_size", 0), ("loaders", -1)],
    "mnist_digits": [("train_size", 0), ("test_size", 0), ("seed", -1), ("label_noise", 1.0)],
    "qa_synthetic": [("train_size", 0), ("test_size", 0), ("seed", -1)],
}


@pytest.mark.parametrize("name", OUT_OF_RANGE)
def test_options_out_of_range_are_named(name: str) -> None:
    options = {"root": "data"} if name in ("criteo", "imagenet") else {}
    for key, value in OUT_OF_RANGE[name]:
        with pytest.raises(ValueError, match=f"{key}.*{value}") as caught:
            load(name, **options, **{key: value})
        assert "\n" not in str(caught.value)
