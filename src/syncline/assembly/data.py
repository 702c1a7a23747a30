"""The data of a run: one of ours, or the user's own."""

from dataclasses import replace
from typing import Any

from syncline.config import ConfigError, OwnDatasetConfig, OwnPart, RunConfig, content_here
from syncline.datasets.batch_source import Dataset
from syncline.datasets.map_style import map_style
from syncline.datasets.registry import load
from syncline.datasets.streams import seed_global_generators
from syncline.shapes import Shape

DATA_SEED = 0  # of what a data set of the user's own draws when it is made


def load_dataset(config: RunConfig) -> Dataset:
    """The data set. Raises DataMissingError if it is missing, ConfigError if its content is not that of the config."""
    dataset: Any = (
        load_own(config.dataset) if isinstance(config.dataset, OwnPart) else load(**config.dataset.loader_options())
    )
    expected = config.dataset.content
    if expected is not None and (found := content_here(config.dataset)) != expected:
        raise ConfigError(
            f"dataset={config.dataset.name} must have content {expected}, which this run is of, got {found}; "
            "dataset.root=FOLDER or SYNCLINE_DATA=FOLDER names the folder of the data"
        )
    augment = getattr(config.dataset, "augment", None)
    loaded: Dataset = dataset if augment is None else replace(dataset, augment=augment)
    share = config.dataset.validation
    try:
        return loaded if share is None else loaded.with_validation(share)
    except ValueError as error:
        raise ConfigError(str(error)) from None


def load_own(part: OwnPart) -> Dataset:
    """A data set of the user's own: its target is called once with train=True and once with train=False.

    A file's `train` and `test`, mappings of arguments, stand in place of these. The global generators are seeded
    before each call, always alike.

    Raises:
        ConfigError: it is no data set.
    """
    assert isinstance(part, OwnDatasetConfig)
    arguments = part.arguments
    differ = [arguments.get(name) for name in ("train", "test")]
    if all(isinstance(each, dict) for each in differ):
        shared = {key: value for key, value in arguments.items() if key not in ("train", "test")}
        calls = [{**shared, **each} for each in differ if each is not None]
    else:
        calls = [{"train": is_train, **arguments} for is_train in (True, False)]
    if part.validation is not None and (transforms := {key: calls[1][key] for key in calls[1] if "transform" in key}):
        calls.append({**calls[0], **transforms})  # what is held out for validation is read as the test is
    made = []
    for call in calls:  # the same numbers in each, so that they split the samples alike, whatever the seed of the run
        seed_global_generators(DATA_SEED)
        made.append(part.called(call))
    try:
        return map_style(part.name, made[0], made[1], part.train_size, part.test_size, part.num_classes, *made[2:])
    except ValueError as error:
        raise ConfigError(str(error)) from None


def shape_of(config: RunConfig) -> Shape:
    """The input shape and output size of the network, from the config alone if possible.

    Raises:
        DataMissingError: they depend on the data, which are missing.
    """
    return config.dataset.shape or load_dataset(config).shape
