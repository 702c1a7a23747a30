"""The first steps of a run as an ordinary PyTorch loop makes them, on parts that are built for it.

Nothing of the engines is in it: no flat vector, no shard, no version. Data, rates and seeds are those of the run.
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from syncline.assembly.device import pick_device
from syncline.assembly.network import build_module, build_task
from syncline.assembly.optimizers import build_optimizer, build_rate
from syncline.config import OwnPart, RunConfig
from syncline.datasets.batch_source import BatchSource, Dataset
from syncline.datasets.sharding import WorkerShare
from syncline.datasets.streams import Purpose, seed_global_generators, stream
from syncline.learning.foreign import PARAMETERS, DeclaredTask, is_torch
from syncline.learning.gradient import MiniBatch
from syncline.learning.layout import UNREACHED, Layout


@dataclass(frozen=True, slots=True)
class Steps:
    """What a loop found."""

    losses: list[float]
    begun: dict[str, Tensor]  # the trained parameters by name, before the first step
    ended: dict[str, Tensor]  # after the last one
    metrics: dict[str, float]  # at the end, on the test set


def plain_steps(config: RunConfig, dataset: Dataset, num_steps: int) -> Steps:
    """So many steps of one worker. Raises any error of the user's code."""
    device = pick_device(config)
    task, module = build_task(config), build_module(config, dataset.shape).to(device)
    loss_module = task.module if isinstance(task, DeclaredTask) else None
    holders = {"": module} if loss_module is None else {"": module, "task.": loss_module.to(device)}
    for holder in holders.values():
        holder.train()
    named = {
        prefix + name: each
        for prefix, holder in holders.items()
        for name, each in holder.named_parameters()
        if each.requires_grad
    }
    source, rate = dataset.batch_source(device, config.batch_task), build_rate(config, dataset.num_train)
    share = WorkerShare(dataset.num_train, 1, 0, config.batch_size, config.seed)
    begun = {name: each.detach().clone() for name, each in named.items()}
    optimizer = _torch_optimizer(config, named)
    step = _flat_step(config, named) if optimizer is None else _step_of(config, optimizer)
    precision, losses = getattr(torch, config.precision), []
    for number in range(num_steps):
        batch = _batch(source, share, number)
        for parameter in named.values():
            parameter.grad = None
        batch.seed_generators()
        with torch.autocast(device.type, precision, enabled=precision != torch.float32):
            loss = task.loss(module, batch.samples)
        loss.backward()  # type: ignore[no-untyped-call]
        if config.optimizer.clip_norm is not None:
            torch.nn.utils.clip_grad_norm_(list(named.values()), config.optimizer.clip_norm)
        step(rate(number * config.batch_size, number))
        losses.append(loss.item())
    ended = {name: each.detach().clone() for name, each in named.items()}
    if callable(evaluate := getattr(optimizer, "eval", None)):
        evaluate()
    return Steps(losses, begun, ended, _metrics(task, holders, source))


def _batch(source: BatchSource, share: WorkerShare, number: int) -> MiniBatch:
    key = share.worker, number, share.seed
    generator = stream(Purpose.AUGMENT, *key) if source.is_random else None
    samples = tuple(column.clone() for column in source.take(share.batch(number), generator))
    return MiniBatch(samples, key)


def _metrics(task: Any, holders: dict[str, nn.Module], source: BatchSource) -> dict[str, float]:
    for holder in holders.values():
        holder.eval()
    seed_global_generators(0)
    with torch.no_grad():
        found: dict[str, float] = task.evaluate(holders[""], source)
    return found


def _step_of(config: RunConfig, optimizer: torch.optim.Optimizer) -> Callable[[float], None]:
    ratios = [group["lr"] / config.optimizer.lr for group in optimizer.param_groups]

    def step(rate: float) -> None:
        for group, ratio in zip(optimizer.param_groups, ratios, strict=True):
            group["lr"] = rate * ratio
        optimizer.step()

    return step


def _flat_step(config: RunConfig, named: dict[str, nn.Parameter]) -> Callable[[float], None]:
    """By our optimizer of the flat vector, where torch has none of its kind."""
    layout = Layout.of(named)
    optimizer = build_optimizer(config, layout)

    def step(rate: float) -> None:
        weights, gradient = (torch.empty(layout.size, device=next(iter(named.values())).device) for _ in range(2))
        for place, parameter in zip(layout.places, named.values(), strict=True):
            place.of(weights).copy_(parameter.detach())
            place.of(gradient).copy_(
                torch.full_like(parameter, UNREACHED) if parameter.grad is None else parameter.grad
            )
        optimizer.step(weights, gradient, rate, out=weights)
        for place, parameter in zip(layout.places, named.values(), strict=True):
            parameter.data.copy_(place.of(weights))

    return step


def _torch_optimizer(config: RunConfig, named: dict[str, nn.Parameter]) -> torch.optim.Optimizer | None:
    own: Any = config.optimizer
    parameters, options = list(named.values()), {"lr": own.lr, "weight_decay": own.weight_decay}
    if isinstance(own, OwnPart):
        found = own.found()
        if not is_torch(found):
            return None
        takes = inspect.signature(found).parameters
        arguments = {key: value for key, value in options.items() if key in takes} | own.arguments
        first = list(named.items()) if next(iter(takes)) == PARAMETERS[1] else parameters
        made: torch.optim.Optimizer = found(first, **arguments)
        if callable(train := getattr(made, "train", None)):
            train()
        return made
    match own.name:
        case "sgd" if config.momentum == "torch" or not own.momentum:
            return torch.optim.SGD(parameters, momentum=own.momentum, nesterov=own.nesterov, **options)
        case "adam" | "adamw":
            kind = torch.optim.Adam if own.name == "adam" else torch.optim.AdamW
            return kind(parameters, betas=(own.beta1, own.beta2), eps=own.eps, **options)
        case "rmsprop" if own.form == "torch":
            return torch.optim.RMSprop(parameters, alpha=own.alpha, eps=own.eps, momentum=own.momentum, **options)
    return None
