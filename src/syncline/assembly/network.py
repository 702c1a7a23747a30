"""The network and its task, ours or the user's own, with their initial weights."""

import inspect
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from syncline.assembly.data import shape_of
from syncline.config import BertConfig, ConfigError, OwnPart, OwnTaskConfig, RunConfig
from syncline.datasets.streams import seed_global_generators
from syncline.learning.flat import FlatModule
from syncline.learning.foreign import DeclaredTask
from syncline.learning.layout import Layout
from syncline.learning.task import TASKS, Task
from syncline.models import build
from syncline.shapes import Shape, sizes

# Of a module, which the engines call with these arguments.
METHODS: dict[str, tuple[Any, ...]] = {
    "train": (True,),
    "eval": (),
    "parameters": (),
    "named_parameters": (),
    "named_buffers": (),
    "named_modules": (),
}


def has_own_network(config: RunConfig) -> bool:
    """Whether model or task are the user's own: they may draw random numbers, and leave parameters unreached."""
    return isinstance(config.model, OwnPart) or isinstance(config.task, OwnPart)


def build_task(config: RunConfig) -> Task:
    """The loss and the metrics; of one's own with its initial parameters, if it has some."""
    task = config.task
    if isinstance(task, OwnPart) and isinstance(task, OwnTaskConfig):
        seed_global_generators(config.seed)
        return DeclaredTask(task.name, task.made(), config.metrics)
    return TASKS[config.task_name]


def build_flat(
    config: RunConfig, shape: Shape, device: torch.device, num_extra: int = 0, task: Task | None = None
) -> FlatModule:
    """The model with its initial weights, and with those of the task.

    Args:
        num_extra: see FlatModule.
        task: as it is used; None: another one is built.

    Raises:
        ConfigError: the model does not fit the data.
    """
    task = build_task(config) if task is None else task
    loss = task.module if isinstance(task, DeclaredTask) else None
    module = build_module(config, shape).to(device)
    try:
        return FlatModule(module, num_extra, None if loss is None else loss.to(device), has_own_network(config))
    except ValueError as error:
        raise ConfigError(f"model={config.model.name}: {error}") from None


def build_module(config: RunConfig, shape: Shape) -> nn.Module:
    """The model as an ordinary module, with its initial weights. Raises ConfigError: it does not fit the data."""
    seed_global_generators(config.seed)
    if isinstance(config.model, OwnPart):
        return _own_module(config.model, shape)
    try:
        return build(**asdict(config.model), **asdict(shape))
    except ValueError as error:
        raise ConfigError(f"model={config.model.name} with dataset={config.dataset.name}: {error}") from None


def _own_module(part: OwnPart, shape: Shape) -> nn.Module:
    """A model of the user's own, built for the sizes that the signature of its target names.

    Raises:
        ConfigError: the target returns no module, or one that needs another engine.
    """
    module = part.made(**sizes(shape))
    if not isinstance(module, nn.Module):
        raise ConfigError(
            f"model={part.name}: {part._target_} must return a torch.nn.Module, got {type(module).__name__}"
        )
    if taken := [name for name, given in METHODS.items() if not _takes(getattr(module, name), given)]:
        raise ConfigError(f"model={part.name}: {taken[0]} must be the method of a torch.nn.Module; choose another name")
    if any(isinstance(each, nn.Embedding | nn.EmbeddingBag) and each.sparse for each in module.modules()):
        raise ConfigError(f"model={part.name}: its gradient must be dense: sparse=False in its embeddings")
    if any(isinstance(each, nn.SyncBatchNorm) for each in module.modules()):
        raise ConfigError(
            f"model={part.name}: SyncBatchNorm would need the batches of all workers at once, which no worker has "
            "here; use BatchNorm"
        )
    return module


def _takes(method: Any, given: tuple[Any, ...]) -> bool:
    """Whether it is a method of these arguments."""
    try:
        inspect.signature(method).bind(*given)
    except (TypeError, ValueError):
        return False
    return True


def count_parameters(config: RunConfig) -> tuple[int, int]:
    """The numbers of parameters and of parameter tensors. Raises as `network_layout`."""
    layout = network_layout(config)
    return layout.size, len(layout.places)


def network_layout(config: RunConfig) -> Layout:
    """The trained tensors of model and task; of ours nothing is initialised or read.

    Raises:
        ConfigError, DataMissingError: as `build_flat` and `shape_of`.
    """
    if has_own_network(config):
        return build_flat(config, shape_of(config), torch.device("cpu")).layout
    if isinstance(config.model, BertConfig):
        config = replace(config, model=replace(config.model, pretrained=""))
    with torch.device("meta"), _Undrawn():
        module = build_module(config, shape_of(config))
    return Layout.of({name: each for name, each in module.named_parameters() if each.requires_grad})


class _Undrawn(TorchFunctionMode):
    """Skips normal draws: on the meta device torch would first import its compiler, which takes seconds."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func is torch.Tensor.normal_:
            return args[0]
        if func is nn.init.normal_:
            return (kwargs or {})["tensor"]
        return func(*args, **(kwargs or {}))
