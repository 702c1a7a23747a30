"""A model, its data and its task held to what the engines rely on, and measured."""

import math
import resource
import statistics
import sys
import time
from dataclasses import dataclass

import torch

from syncline.assembly import (
    Learner,
    build_learner,
    build_module,
    build_optimizer,
    build_rate,
    configure_torch,
    pick_device,
)
from syncline.config import ConfigError, RunConfig
from syncline.learning.flat import FlatModule
from syncline.learning.gradient import GradientFunction, MiniBatch

NUM_EQUAL = 3  # mini-batches on which the flat vectors are compared with the ordinary module
NUM_TIMED = 20  # gradients


@dataclass(frozen=True, slots=True)
class Measured:
    """What was found of a model with its data."""

    num_train: int
    num_parameters: int
    num_tensors: int
    num_buffers: int  # elements
    gradient_s: tuple[float, float]  # median, and half the range between the quartiles
    batch_s: float  # median seconds of making a mini-batch
    evaluation_s: float
    metrics: dict[str, float]  # of the initial weights, on the test set
    loss: tuple[float, float]  # of one batch, before and after NUM_TIMED steps on it
    peak_bytes: int  # of this process


def check_learning(config: RunConfig) -> Measured:
    """Build model, data and task, compare the flat vectors with the ordinary module, and measure.

    Raises:
        ConfigError: a rule is broken. DataMissingError: the data are missing. Any error of the user's code.
    """
    configure_torch(config)
    device = pick_device(config)
    learner = build_learner(config, device)
    batches = learner.batches_of_all(config)[0]
    made_s, taken = [], list[MiniBatch]()
    for iteration in range(NUM_EQUAL):
        begun = time.perf_counter()
        taken.append(batches.take(iteration))
        made_s.append(time.perf_counter() - begun)
    compare(config, learner, taken)
    weights, buffers = learner.flat.weights.clone(), learner.flat.buffers.clone()
    begun = time.perf_counter()
    metrics = learner.evaluator()([weights], buffers)
    evaluation_s = time.perf_counter() - begun
    again = learner.evaluator()([weights], buffers)
    if device.type == "cpu" and {name: repr(value) for name, value in metrics.items()} != {
        name: repr(value) for name, value in again.items()
    }:
        raise ConfigError(f"the metrics of the same weights must be the same, got {metrics} and {again}")
    seconds, losses = _steps(config, learner, taken[0])
    quartiles = statistics.quantiles(seconds, n=4)
    return Measured(
        num_train=learner.num_train,
        num_parameters=weights.numel(),
        num_tensors=len(learner.flat.trained),
        num_buffers=buffers.numel(),
        gradient_s=(quartiles[1], (quartiles[2] - quartiles[0]) / 2),
        batch_s=statistics.median(made_s),
        evaluation_s=evaluation_s,
        metrics=metrics,
        loss=losses,
        peak_bytes=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024),
    )


def compare(config: RunConfig, learner: Learner, batches: list[MiniBatch]) -> None:
    """Hold the gradients on flat vectors to those of the ordinary module: in every bit on a CPU.

    Raises:
        ConfigError: they differ.
    """
    device = learner.flat.weights.device
    ordinary = build_module(config, learner.dataset.shape).to(device)
    flat = FlatModule(build_module(config, learner.dataset.shape).to(device))
    parameters = [parameter for parameter in ordinary.parameters() if parameter.requires_grad]
    gradient = GradientFunction(flat, learner.gradient.task)
    weights, buffers = flat.weights.clone(), flat.buffers.clone()
    for number, batch in enumerate(batches):
        for parameter in parameters:
            parameter.grad = None
        torch.manual_seed(batch.noise_seed())
        expected = learner.gradient.task.loss(ordinary, batch.samples)
        expected.backward()  # type: ignore[no-untyped-call]
        loss, vector, buffers_after = gradient([weights], buffers, batch)
        found = [torch.zeros_like(each) if each.grad is None else each.grad for each in parameters]
        apart = (torch.cat([each.reshape(-1) for each in found]) - vector).abs().max().item()
        buffers = buffers_after.clone()
        allowed = 0.0 if device.type == "cpu" else 1e-5
        if not (abs(loss - expected.item()) <= allowed and apart <= allowed):
            raise ConfigError(
                f"model={config.model.name}: mini-batch {number} must have the same gradient on flat vectors as in "
                f"the ordinary module, got losses {loss:.9g} and {expected.item():.9g}, gradients {apart:.3g} apart"
            )


def _steps(config: RunConfig, learner: Learner, batch: MiniBatch) -> tuple[list[float], tuple[float, float]]:
    """Steps on one mini-batch: seconds of each gradient, and the loss before and after.

    Raises:
        ConfigError: weights or losses are not finite.
    """
    weights, buffers = learner.flat.weights.clone(), learner.flat.buffers.clone()
    optimizer, rate = build_optimizer(config), build_rate(config, learner.num_train)
    seconds, losses = [], []
    for step in range(NUM_TIMED):
        begun = time.perf_counter()
        loss, gradient, after = learner.gradient([weights], buffers, batch)
        seconds.append(time.perf_counter() - begun)
        losses.append(loss)
        buffers = after.clone()
        optimizer.step(weights, gradient.clone(), rate(step * config.batch_size, step), weights)
        if not (math.isfinite(loss) and bool(weights.isfinite().all())):
            raise ConfigError(f"step {step} on one mini-batch must leave finite numbers, got the loss {loss}")
    return seconds, (losses[0], losses[-1])
