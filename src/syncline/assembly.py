"""From a config to the parts that every engine is put together from; the same seed gives the same bits."""

from collections.abc import Callable
from dataclasses import asdict

import torch

from syncline.config import ConfigError, RunConfig
from syncline.datasets import load
from syncline.datasets.images import ImageDataset
from syncline.datasets.sharding import WorkerShare
from syncline.learning.flat import FlatModule
from syncline.learning.optimizer import Sgd
from syncline.learning.schedule import EpochClock, StepSchedule
from syncline.learning.server import Shard, Version, blocks
from syncline.models import build


def pick_device(config: RunConfig, index: int = 0) -> torch.device:
    """The device that `config.device` asks for; of several GPUs, process number `index` takes the next in turn.

    Raises:
        ConfigError: it is not there.
    """
    device = torch.device("cuda" if config.device != "cpu" and torch.cuda.is_available() else "cpu")
    if config.device == "cuda" and device.type == "cpu":
        raise ConfigError("device=cuda, but torch sees no CUDA device; use device=auto or device=cpu")
    return torch.device("cuda", index % torch.cuda.device_count()) if device.type == "cuda" else device


def load_dataset(config: RunConfig) -> ImageDataset:
    """The data set.

    Raises:
        DataMissingError: it is not there.
    """
    return load(**{key: value for key, value in asdict(config.dataset).items() if key != "augment"})


def build_flat(config: RunConfig, shape: tuple[int, int, int], device: torch.device, num_extra: int = 0) -> FlatModule:
    """The model with its initial weights.

    Args:
        shape: (channels, pixels a side, classes) of the data set.
        num_extra: see FlatModule.

    Raises:
        ConfigError: the model does not take such data.
    """
    channels, size, classes = shape
    torch.manual_seed(config.seed)
    try:
        module = build(**asdict(config.model), in_channels=channels, image_size=size, num_classes=classes)
    except ValueError as error:
        raise ConfigError(f"model={config.model.name} with dataset={config.dataset.name}: {error}") from None
    return FlatModule(module.to(device), num_extra)


def build_optimizer(config: RunConfig) -> Sgd:
    return Sgd(config.optimizer.momentum, config.optimizer.weight_decay, config.momentum)


def build_rate(config: RunConfig, num_train: int) -> Callable[[int, int], float]:
    """(samples, updates) made so far -> learning rate of the next update."""
    schedule = StepSchedule(
        config.optimizer.lr, config.optimizer.schedule.factor, tuple(config.optimizer.schedule.at_epochs)
    )
    clock = EpochClock(config.lr_clock, num_train, config.cluster.workers, config.batch_size)
    return lambda samples, updates: schedule.rate(clock.epoch(samples, updates))


def build_shard(config: RunConfig, number: int, flat: FlatModule, num_train: int, is_whole: bool) -> Shard:
    """One shard of the parameter server, at the initial weights.

    Args:
        is_whole: gradients come as the whole flat vector, of which the shard takes its block; else as its block alone.
    """
    block = blocks(flat.weights.numel(), config.cluster.shards)[number]
    return Shard(
        block=block if is_whole else slice(0, block.stop - block.start),
        current=Version(
            flat.weights[block].clone(), flat.buffers.clone() if number == 0 else flat.buffers.new_empty(0)
        ),
        optimizer=build_optimizer(config),
        rate=build_rate(config, num_train),
        num_workers=config.cluster.workers,
        divide_by_workers=config.async_gradient == "mean_over_workers",
    )


def build_share(config: RunConfig, worker: int, num_train: int) -> WorkerShare:
    """Which samples the worker sees, in which order."""
    return WorkerShare(num_train, config.cluster.workers, worker, config.batch_size, config.seed)


def shape_of(dataset: ImageDataset) -> tuple[int, int, int]:
    """(channels, pixels a side, classes)."""
    _, channels, size, _ = dataset.train_images.shape
    return channels, size, dataset.num_classes
