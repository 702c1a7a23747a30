"""The table of models and the files in conf/model."""

import re
from pathlib import Path

import pytest
import torch
import yaml

from syncline.models import MODELS, build

FILES = sorted((Path(__file__).parents[2] / "conf" / "model").glob("*.yaml"))
OURS = {
    *("lenet", "alexnet_small", "resnet8", "resnet20", "resnet32", "resnet50_cifar", "resnet56", "resnet110"),
    *("wrn10_1", "wrn16_4", "wrn26_10", "wrn28_10"),
}


@pytest.mark.parametrize("choice", sorted(OURS))
def test_each_file_builds_the_network_it_names(choice: str) -> None:
    values = yaml.safe_load(next(file for file in FILES if file.stem == choice).read_text())
    name = values.pop("name")
    with torch.device("meta"):
        network = build(name, in_channels=3, image_size=32, num_classes=10, **values)
    assert type(network) is MODELS[name]
    numbers = [int(number) for number in re.findall(r"\d+", choice)]
    assert [values[key] for key in ("depth", "width")[: len(numbers)]] == numbers
    assert values.get("dropout", 0.0) == 0.0
