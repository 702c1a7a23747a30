"""Which network learns from which data: the documentation's table, and whether every pair is built or refused."""

import dataclasses
import re
from pathlib import Path

import pytest
from composing import choosing, composed

from syncline.assembly.network import count_parameters
from syncline.config import ConfigError, RunConfig, choices

TEXT = (Path(__file__).parents[1] / "docs" / "models-and-data.md").read_text()
MODELS, DATASETS = choices("model"), choices("dataset")
KNOWN = [dataset for dataset in DATASETS if dataset != "arrays"]  # whose shape follows from the config


# Data that the table counts parameters with; of images, those of CIFAR-10 unless a network wants more.
COUNTED = {"classification": "cifar10", "ctr": "criteo", "generation": "mnist", "language": "text8", "qa": "squad"}


def table(heading: str) -> list[list[str]]:
    """Cells of the rows of the first table under a heading, without its head."""
    section = TEXT.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    rows = [line.strip("|").split(" | ") for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row] for row in rows[2:]]


def named(cell: str) -> set[str]:
    return set(re.findall(r"`([a-z0-9_]+)`", cell))


@pytest.fixture(scope="module")
def parts() -> dict[str, dict[str, object]]:
    """Every model's and every data set's options, each composed once."""
    models = {choice: composed(*choosing("model", choice))[0].model for choice in MODELS}
    datasets = {choice: composed(*choosing("dataset", choice))[0].dataset for choice in KNOWN}
    # Vocabularies whose size depends on the data.
    datasets["squad"] = dataclasses.replace(datasets["squad"], vocab="minilm")
    return {"model": models, "dataset": datasets}


def pair(parts, model: str, dataset: str) -> RunConfig:
    return dataclasses.replace(composed()[0], model=parts["model"][model], dataset=parts["dataset"][dataset])


# Those of BERT and GPT need transformers, which takes seconds to import; the others are deeper ones of a kind.
LARGE = re.compile(r"bert|gpt|resnet(32|56|110)|wrn2")
EACH = [pytest.param(model, marks=[pytest.mark.slow] * bool(LARGE.match(model))) for model in MODELS]


@pytest.mark.parametrize("model", EACH)
def test_every_pair_is_built_or_refused_in_one_line(parts, model: str) -> None:
    goes, refused = set(), []
    built = set()
    for dataset in KNOWN:
        try:
            config = pair(parts, model, dataset)
            needs = f"{config.dataset.shape} {config.task_name}"  # what a network depends on
            if needs not in built:
                num_parameters, num_tensors = count_parameters(config)
                assert num_parameters > num_tensors > 0
        except ConfigError as error:
            refused.append(str(error))
        else:
            built.add(needs)
            goes.add(dataset)
    name = parts["model"][model].name
    assert all(line.startswith(f"model={name} ") and "\n" not in line for line in refused), refused
    (row,) = (row for row in table("Networks") if model in named(row[0]))
    assert named(row[-1]) - {"arrays"} == goes


def test_every_network_and_every_data_set_has_a_row() -> None:
    assert set().union(*(named(row[0]) for row in table("Networks"))) == set(MODELS)
    assert set().union(*(named(row[0]) for row in table("Data"))) == set(DATASETS)


@pytest.mark.parametrize("model", EACH)
def test_the_parameters_are_as_many_as_the_table_says(parts, model: str) -> None:
    (row,) = (row for row in table("Networks") if model in named(row[0]))
    counts = dict(zip(sorted(named(row[0])), re.findall(r"[\d,]{4,}", row[2]), strict=True))
    learned = parts["model"][model].tasks or ("classification",)
    dataset = "imagenet" if model in ("resnet50", "wrn50_2", "inception_v3") else COUNTED[learned[0]]
    config = pair(parts, model, dataset)
    if model == "inception_v3":
        config = dataclasses.replace(config, dataset=dataclasses.replace(config.dataset, image_size=299))
    assert count_parameters(config)[0] == int(counts[model].replace(",", ""))


COMMANDS = [line for block in re.findall(r"```bash\n(.*?)```", TEXT, re.DOTALL) for line in block.splitlines()]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_composes(command: str) -> None:
    assert composed(*command.split()[2:])[0].cluster.workers == 1
