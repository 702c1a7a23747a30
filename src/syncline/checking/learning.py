"""A model, its data, task and optimizer held to what an ordinary PyTorch loop makes of them, and measured."""

import math
import resource
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch import Tensor

from syncline.assembly.data import load_dataset
from syncline.assembly.device import configure_torch, pick_device
from syncline.assembly.optimizers import build_optimizer
from syncline.assembly.problem import Problem, build_problem
from syncline.checking.plain_loop import Steps, plain_steps
from syncline.config import ConfigError, OwnPart, RunConfig, SimulateConfig
from syncline.config.compression import CompressConfig
from syncline.config.local_steps import LocalStepsConfig
from syncline.config.run import TargetConfig
from syncline.config.updates import UpdateConfig
from syncline.datasets.streams import Purpose, stream
from syncline.learning.layout import Layout
from syncline.simulation.run import RunState, simulate
from syncline.strategies import STRATEGIES
from syncline.timing.cluster import ClusterConfig, ScenarioConfig

NUM_STEPS = 20
NUM_TIMED = 20  # gradients
TOLERANCE = 1e-5  # of how far a tensor has moved; for rounding, which is other in another order of operations
COARSE_TOLERANCE = 1e-2  # on a GPU, and with 16-bit numbers

Parameters = Mapping[str, Tensor]
Real = Callable[[RunConfig], tuple[Tensor, Mapping[str, float]]]
"""Makes a run with real processes: the flat vector of parameters at the end, and the metrics."""


@dataclass
class Found:
    """What was found of a model with its data."""

    num_train: int
    num_parameters: int
    num_tensors: int
    num_buffers: int  # elements
    gradient_s: tuple[float, float]  # median, and half the range between the quartiles
    batch_s: float  # median seconds of making a mini-batch
    evaluation_s: float
    metrics: Mapping[str, float]  # of the initial weights, on the test set
    losses: tuple[float, float]  # the first and the last one of NUM_STEPS steps
    compared: list[tuple[str, str, float]] = field(default_factory=list)  # what, with what, largest difference
    faults: list[str] = field(default_factory=list)  # each in one sentence
    notes: list[str] = field(default_factory=list)
    peak_bytes: int = 0  # of this process

    def compare(self, what: str, other: str, apart: float, allowed: float, fault: str) -> None:
        """Note a difference. Raises _Differs if it is larger than what is allowed."""
        self.compared.append((what, other, apart))
        if not apart <= allowed:
            self.faults.append(fault)
            raise _Differs


class _Differs(Exception):
    """Something differs."""


def check_learning(config: RunConfig, real: Real | None) -> Found:
    """Compare the first steps of a run of one worker with those of an ordinary loop, and measure them.

    Args:
        real: None where no real processes can be started.

    Raises:
        ConfigError: a part cannot be used. DataMissingError: the data are missing. Any error of the user's code.
    """
    configure_torch(config)
    alone = _alone(config)
    problem = build_problem(alone, pick_device(alone))
    build_optimizer(alone, problem.flat.layout)  # refused before anything is compared, if it is to be
    found = _measured(alone, problem)
    with suppress(_Differs):  # what comes after it would differ for the same reason
        _compare(alone, problem, real, found)
    found.peak_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return found


def _compare(config: RunConfig, problem: Problem, real: Real | None, found: Found) -> None:
    _check_data(config, problem, found)
    layout, begun = problem.flat.layout, problem.flat.weights.clone()
    metrics = problem.evaluator()([begun], problem.flat.buffers.clone())
    found.compare(
        "metrics of the same weights",
        "those a second time",
        _metrics_apart(found.metrics, metrics),
        0.0 if begun.device.type == "cpu" else COARSE_TOLERANCE,
        "the metrics of the same weights differ the second time: the evaluation, the model in evaluation mode or the "
        "test data keep a state, or draw from a generator that is not seeded",
    )
    _check_samples(config, problem, found)
    ours, plain = _Run(config), plain_steps(config, load_dataset(config), NUM_STEPS)
    found.losses = plain.losses[0], plain.losses[-1]
    if (lost := next((step for step, loss in enumerate(plain.losses, 1) if not math.isfinite(loss)), None)) is not None:
        found.faults.append(f"the loss of an ordinary loop is no finite number at step {lost}")
        return
    found.compare(
        "initial parameters",
        "those built again",
        float((begun.cpu() - _flat(layout, plain.begun)).abs().max()),
        0.0,
        "the model has other initial parameters when it is built again: it must draw from the global generators of "
        "torch, NumPy or Python, which are seeded before",
    )
    _check_steps(config, layout, plain, ours, found)
    _check_resumed(config, layout, plain, ours, found)
    if real is not None:
        weights, final = real(config)
        apart, where = _largest(layout, weights, ours.weights, plain)
        found.compare(
            f"{NUM_STEPS} steps with real processes",
            "virtual time",
            max(apart, _metrics_apart(final, ours.metrics)),
            _tolerance(config),
            f"real processes end at other weights ({where}) than virtual time: what a part does depends on its "
            "process, such as the order of a set, a hash, a file that changes or a global variable",
        )


def _alone(config: RunConfig) -> RunConfig:
    """One worker, whose every gradient is an update."""
    return replace(
        config,
        strategy=STRATEGIES["asp"](),
        update=UpdateConfig(),
        local=LocalStepsConfig(),
        compress=CompressConfig(),
        cluster=ClusterConfig(workers=1),
        scenario=ScenarioConfig(),
        dataset=replace(config.dataset, sharing="partition"),
        runner=SimulateConfig(events=False),
        target=TargetConfig(),
        async_gradient="mean",
        lr_clock="samples",
        max_updates=NUM_STEPS,
        epochs=None,
        max_time_s=None,
    )


def _measured(config: RunConfig, problem: Problem) -> Found:
    flat, batches = problem.flat, problem.batches(config, 0)
    made_s, spent = [], []
    weights, buffers = flat.weights.clone(), flat.buffers.clone()
    for number in range(NUM_TIMED):
        begun = time.perf_counter()
        batch = batches.take(number)
        made_s.append(time.perf_counter() - begun)
        begun = time.perf_counter()
        problem.gradient([weights], buffers.clone(), batch)
        spent.append(time.perf_counter() - begun)
    begun = time.perf_counter()
    metrics = problem.evaluator()([weights], buffers)
    evaluation_s = time.perf_counter() - begun
    quartiles = statistics.quantiles(spent, n=4)
    return Found(
        num_train=problem.num_train,
        num_parameters=weights.numel(),
        num_tensors=len(flat.trained),
        num_buffers=buffers.numel(),
        gradient_s=(quartiles[1], (quartiles[2] - quartiles[0]) / 2),
        batch_s=statistics.median(made_s),
        evaluation_s=evaluation_s,
        metrics=metrics,
        losses=(0.0, 0.0),
    )


def _check_data(config: RunConfig, problem: Problem, found: Found) -> None:
    """Notes on what the data hold; the labels of the first batches of the test are compared with those of training."""
    if config.task_name != "classification":
        return
    batches = problem.batches(config, 0)
    taken = [batches.take(number).samples for number in range(min(NUM_TIMED, problem.num_train // config.batch_size))]
    seen = set(torch.cat([batch[-1].flatten() for batch in taken]).tolist())
    tests = [batch[-1].flatten().cpu() for batch in islice(problem.source.test(), NUM_TIMED)]
    alone = sorted(set(torch.cat(tests).tolist()) - seen)
    if alone and len(seen) < sum(batch[-1].numel() for batch in taken) / 2:
        found.notes.append(f"the test has labels {alone[:5]} that none of {len(taken)} training batches has")
    samples = taken[0][0]
    if samples.ndim == 4 and samples.is_floating_point() and float(samples.abs().max()) > 20:
        found.notes.append(f"pixels reach {float(samples.abs().max()):g}: they are not normalised")


def _check_samples(config: RunConfig, problem: Problem, found: Found) -> None:
    """The data set is built again, and read in another order."""
    again = load_dataset(config)
    source, batches = again.batch_source(problem.flat.weights.device, config.batch_task), problem.batches(config, 0)
    other = replace(problem, dataset=again, source=source).batches(config, 0)
    first = [batches.take(number).samples for number in range(3)]
    source.take(np.concatenate([batches.share.batch(number) for number in range(3)]), stream(Purpose.AUGMENT, 1, 0, 0))
    second = [other.take(number).samples for number in range(3)]
    tests = zip(islice(problem.source.test(), 3), islice(source.test(), 3), strict=True)
    pairs = (*zip(first, second, strict=True), *tests)
    is_same_size = again.num_train == problem.num_train
    found.compare(
        "samples",
        "those built again, in another order",
        max(_columns_apart(one, another) for one, another in pairs) if is_same_size else float("inf"),
        0.0,
        "the data set has other samples when it is built again and read in another order: it must keep no state, and "
        "draw from the global generators of torch, NumPy or Python, which are seeded before, or from one with a seed",
    )


class _Run:
    """A run in virtual time: its flat vector at the end, its metrics, and its state in the middle."""

    def __init__(self, config: RunConfig, state: RunState | None = None) -> None:
        self.weights = torch.empty(0)
        self.state: RunState | None = None
        checkpointer = _Once(self) if state is None else None
        summary = simulate(
            config, lambda row: None, lambda progress: None, None, checkpointer, state, self._save_parameters
        )
        self.metrics: Mapping[str, float] = summary["final"] or {}

    def _save_parameters(self, name: str, tensors: Mapping[str, Tensor], about: Mapping[str, Any]) -> None:
        self.weights = tensors["weights"].clone()


class _Once(nullcontext[None]):
    """Saves one checkpoint, in the middle."""

    def __init__(self, run: _Run) -> None:
        super().__init__()
        self._run, self._asked = run, 0

    @property
    def is_due(self) -> bool:
        self._asked += 1
        return self._asked == NUM_STEPS // 2

    def save(self, state: RunState) -> None:
        tensors, values = state
        self._run.state = {name: tensor.clone() for name, tensor in tensors.items()}, dict(values)


def _check_steps(config: RunConfig, layout: Layout, plain: Steps, ours: _Run, found: Found) -> None:
    allowed, vector = _tolerance(config), _flat(layout, plain.ended)
    apart, where = _largest(layout, ours.weights, vector, plain)
    if isinstance(config.optimizer, OwnPart):
        cause = f"optimizer={config.optimizer.name} may depend on more than parameters, gradients and its rate"
    else:
        cause = "model or loss keep a state that is no parameter or buffer"
    found.compare(
        f"parameters after {NUM_STEPS} steps",
        "an ordinary loop's",
        apart,
        allowed,
        f"after {NUM_STEPS} steps {where} is not where an ordinary loop of one worker has it: {cause}, or an "
        "evaluation changes what training uses",
    )
    if config.optimizer.average_decay is None:
        found.compare(
            f"metrics after {NUM_STEPS} steps",
            "an ordinary loop's",
            _metrics_apart(ours.metrics, plain.metrics),
            max(allowed, 1e-6) * 10,
            f"the metrics after {NUM_STEPS} steps are not an ordinary loop's ({_shown(ours.metrics)} and "
            f"{_shown(plain.metrics)}): the evaluation depends on what came before it, or changes its data",
        )


def _check_resumed(config: RunConfig, layout: Layout, plain: Steps, ours: _Run, found: Found) -> None:
    if ours.state is None:
        raise ConfigError(f"{NUM_STEPS} steps were asked for, but the run ended before {NUM_STEPS // 2}: it diverged")
    resumed = _Run(config, ours.state)
    apart, where = _largest(layout, resumed.weights, ours.weights, plain)
    metrics_apart = _metrics_apart(resumed.metrics, ours.metrics)
    found.compare(
        f"stopped after {NUM_STEPS // 2} steps, resumed",
        "not stopped",
        max(apart, metrics_apart),
        0.0 if pick_device(config).type == "cpu" else COARSE_TOLERANCE,
        f"stopped and resumed in the middle, {where if apart else 'the evaluation'} ends elsewhere: optimizer, model "
        "or loss keep a state where no checkpoint finds it; what is kept are trained parameters, buffers of real "
        "numbers and the state_dict of an optimizer",
    )


def _tolerance(config: RunConfig) -> float:
    is_fine = config.precision == "float32" and pick_device(config).type == "cpu"
    return TOLERANCE if is_fine else COARSE_TOLERANCE


def _flat(layout: Layout, parameters: Parameters) -> Tensor:
    vector = torch.empty(layout.size)
    for place in layout.places:
        place.of(vector).copy_(parameters[place.name])
    return vector


def _largest(layout: Layout, one: Tensor, other: Tensor, plain: Steps) -> tuple[float, str]:
    """The largest difference of a tensor in two flat vectors, as a share of how far it has moved; and its name."""
    found = [(0.0, "no parameter")]
    for place in layout.places:
        apart = float((place.of(one.cpu()) - place.of(other.cpu())).norm())
        moved = float((plain.ended[place.name] - plain.begun[place.name]).norm())
        if apart:
            found.append((apart / moved if moved else float("inf"), place.name))
    return max(found)


def _columns_apart(one: tuple[Tensor, ...], other: tuple[Tensor, ...]) -> float:
    if [column.shape for column in one] != [column.shape for column in other]:
        return float("inf")
    pairs = [(a.double().nan_to_num(), b.double().nan_to_num()) for a, b in zip(one, other, strict=True)]
    return max((float((a - b).abs().max()) for a, b in pairs if a.numel()), default=0.0)


def _metrics_apart(one: Mapping[str, float], other: Mapping[str, float]) -> float:
    """The largest difference of a metric; relative where they are above 1."""
    if set(one) != set(other):
        return float("inf")
    return max(
        (abs(one[name] - other[name]) / max(1.0, abs(other[name])) for name in one if one[name] == one[name]),
        default=0.0,
    )


def _shown(metrics: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value:.6g}" for name, value in metrics.items())
