"""The problem: network, data and the function of gradients that joins them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor, nn

from syncline.assembly.data import load_dataset
from syncline.assembly.network import build_flat, build_task, has_own_network
from syncline.config import ConfigError, OwnPart, RunConfig
from syncline.datasets.batch_source import BatchSource, Dataset
from syncline.datasets.labelled import LabelledDataset
from syncline.datasets.sharding import Indices, Turns, WorkerShare, class_shares
from syncline.learning.evaluate import Evaluator
from syncline.learning.flat import FlatModule
from syncline.learning.foreign import DeclaredTask
from syncline.learning.gradient import GradientFunction, WorkerBatches
from syncline.learning.probe import probe
from syncline.learning.task import Classification, logits_of
from syncline.shapes import sizes
from syncline.targets import fault

# Of batches that are alike, which CUDA graphs were tried with.
TASKS_IN_GRAPHS = ("classification", "language", "next_token")
READ_AT_ONCE = 1000  # samples, for their labels


@dataclass(frozen=True, slots=True)
class Problem:
    """The network and its data, on one device."""

    flat: FlatModule
    gradient: GradientFunction
    dataset: Dataset
    source: BatchSource  # of the dataset, for the model's task

    @property
    def num_train(self) -> int:
        return self.dataset.num_train

    @property
    def best_possible(self) -> dict[str, float]:
        """Bounds of the metrics on these data, where known."""
        best: dict[str, float] = getattr(self.dataset, "best", {})
        return best

    def evaluator(self) -> Evaluator:
        return Evaluator(self.source, self.gradient.task, self.flat)

    def batches(self, config: RunConfig, worker: int) -> WorkerBatches:
        """The mini-batches of a worker, in order; not where workers share an order in which they begin."""
        if config.dataset.sharing == "partition":
            return self._of_shares(config, [worker])[0]
        assert not config.strategy.has_server
        return WorkerBatches(self.source, Turns(self._order(config), config.cluster.workers, worker))

    def batches_of_all(self, config: RunConfig) -> list[WorkerBatches]:
        """The mini-batches of each worker.

        Where all workers share an order, `config.strategy` having a server, they are those of the order, the same
        object for each.
        """
        workers = range(config.cluster.workers)
        if config.dataset.sharing == "partition":
            return self._of_shares(config, workers)
        order = self._order(config)
        if config.strategy.has_server:
            return [WorkerBatches(self.source, order, in_sequence=False)] * len(workers)
        return [WorkerBatches(self.source, Turns(order, len(workers), worker)) for worker in workers]

    def _of_shares(self, config: RunConfig, workers: Iterable[int]) -> list[WorkerBatches]:
        """Of these workers, each of which has a share of the samples."""
        num, concentration = config.cluster.workers, config.dataset.concentration
        samples: Sequence[Indices | None] = [None] * num
        if concentration is not None:
            samples = class_shares(self._labels(), num, concentration, config.seed)
        key = config.batch_size, config.seed
        shares = (WorkerShare(self.num_train, num, worker, *key, samples[worker]) for worker in workers)
        return [WorkerBatches(self.source, share) for share in shares]

    def _labels(self) -> Indices:
        """Of all training samples, int64 [num_train]; read from the samples where the data set does not list them."""
        if isinstance(self.dataset, LabelledDataset):
            return np.asarray(self.dataset.train.targets)
        parts = np.split(np.arange(self.num_train), range(READ_AT_ONCE, self.num_train, READ_AT_ONCE))
        return np.concatenate([self.source.take(part, None)[-1].cpu().numpy() for part in parts])

    def _order(self, config: RunConfig) -> WorkerShare:
        """The order that all workers share: that of a single worker."""
        return WorkerShare(self.num_train, 1, 0, config.batch_size, config.seed)


def build_problem(config: RunConfig, device: torch.device, num_extra: int = 0, in_graphs: bool = False) -> Problem:
    """The network with its initial weights, and the data.

    If the config determines the input shape, the network is built first: a model that does not fit the data is refused
    before anything is loaded.

    Args:
        num_extra: see FlatModule.
        in_graphs: on a GPU gradients are computed by CUDA graphs, if the task is one of TASKS_IN_GRAPHS, the network
            draws no random numbers, no part is the user's own, and `config.accumulate` is 1.

    Raises:
        ConfigError: the model does not fit the data, or they are too few. DataMissingError: the data are missing.
    """
    shape = config.dataset.shape
    task = build_task(config)
    flat = None if shape is None else build_flat(config, shape, device, num_extra, task)
    dataset = load_dataset(config)
    config.check_num_train(dataset.num_train)
    if flat is None:
        flat = build_flat(config, dataset.shape, device, num_extra, task)
    if shape not in (None, dataset.shape):
        raise ConfigError(f"dataset={config.dataset.name} must be a {shape} by its config, got a {dataset.shape}")
    precision = getattr(torch, config.precision)
    stepping = config.local.optimizer or config.optimizer
    has_own = has_own_network(config) or isinstance(config.dataset, OwnPart)
    in_graphs = in_graphs and device.type == "cuda" and config.task_name in TASKS_IN_GRAPHS
    in_graphs = in_graphs and not flat.is_random and not has_own and config.accumulate == 1
    problem = Problem(
        flat=flat,
        gradient=GradientFunction(flat, task, stepping.clip_norm, precision, config.accumulate, in_graphs),
        dataset=dataset,
        source=dataset.batch_source(device, config.batch_task),
    )
    if has_own:
        _check_samples(config, problem)
        _probe(config, problem)
    return problem


def _probe(config: RunConfig, problem: Problem) -> None:
    """Raises ConfigError: parts of the user's own do not fit each other, or break a rule of the engines."""
    share = WorkerShare(problem.num_train, 1, 0, min(config.batch_size, problem.num_train), config.seed)
    task = build_task(config)
    try:
        twin = build_flat(config, problem.dataset.shape, problem.flat.weights.device, task=task)
        gradient = replace(problem.gradient, flat=twin, task=task, in_graphs=False)
        users = task.made if isinstance(task, DeclaredTask) else task
        batches = WorkerBatches(problem.source, share, in_sequence=False)
        probe(problem.flat, gradient, batches, users)
        if isinstance(task, Classification):
            _check_outputs(twin.module, batches.take(0).samples[0], sizes(problem.dataset.shape)["num_classes"])
    except ConfigError:
        raise
    except Exception as error:
        parts = {"model": config.model.name, "dataset": config.dataset.name, "task": config.task_name}
        what = ", ".join(f"{group}={name}" for group, name in parts.items())
        said = str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
        raise ConfigError(f"{what}: {fault(error) or ' '.join(said.split())}") from error


def _check_samples(config: RunConfig, problem: Problem) -> None:
    """Raises ConfigError: images of whole numbers, which none of our networks scales."""
    samples = problem.source.take(np.array([0]), None)[0]
    if not isinstance(config.model, OwnPart) and samples.ndim > 3 and not samples.is_floating_point():
        rule = "pixels must be real numbers (transform: ToTensor, or x / 255)"
        raise ConfigError(f"dataset={config.dataset.name} with model={config.model.name}: {rule}, got {samples.dtype}")


def _check_outputs(module: nn.Module, samples: Tensor, num_classes: int) -> None:
    """Raises ValueError: the model has another number of outputs than there are classes."""
    with torch.no_grad():
        found = logits_of(module(samples)).shape[1]
    if found != num_classes:
        raise ValueError(
            f"the model returns {found} outputs a sample, for {num_classes} classes; `num_classes: {num_classes}` in "
            "its file gives it that argument"
        )
