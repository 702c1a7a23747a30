"""The table of datasets and the files in conf/dataset."""

import inspect
from pathlib import Path

import pytest
import yaml

from syncline.datasets.registry import DATASETS, load

CONF = Path(__file__).parents[2] / "conf" / "dataset"


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(
        ValueError, match=r"^unknown dataset 'svhn'; choose one of arrays, billion, cifar10, .*digits, glyphs10"
    ):
        load("svhn")


@pytest.mark.parametrize("name", ["digits", "glyphs10", "glyphs100"])
def test_sizes_and_name_are_those_requested(name: str) -> None:
    dataset = load(name, train_size=20, test_size=11)
    assert dataset.name == name
    assert (len(dataset.train_labels), len(dataset.test_labels)) == (20, 11)


@pytest.mark.parametrize("name", sorted(DATASETS))
def test_each_file_gives_its_loader_every_option(name: str) -> None:
    values = yaml.safe_load((CONF / f"{name}.yaml").read_text())
    assert values.pop("defaults") == [f"{name}_schema", "_self_"]
    assert values.pop("name") == name
    del values["sharing"], values["validation"]  # of what is loaded, not of the loader
    values.pop("augment", None)
    assert set(values) == set(inspect.signature(DATASETS[name]).parameters)
