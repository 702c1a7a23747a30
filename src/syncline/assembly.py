"""From a config to the parts of every engine; the same seed gives the same bits."""

import inspect
import math
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from syncline.config import (
    BertConfig,
    ConfigError,
    OptimizerConfig,
    OwnDatasetConfig,
    OwnPart,
    OwnTaskConfig,
    RunConfig,
    content_here,
)
from syncline.config.compression import FeedbackConfig, Int8Config, RandkConfig, SparseConfig
from syncline.config.updates import UpdateConfig
from syncline.datasets.batch_source import BatchSource, Dataset
from syncline.datasets.labelled import LabelledDataset
from syncline.datasets.map_style import map_style
from syncline.datasets.registry import load
from syncline.datasets.sharding import Indices, Turns, WorkerShare, class_shares
from syncline.datasets.streams import seed_global_generators
from syncline.learning.compression import Compression, Fragment, Int8, PullCompressor, PushCompressor, RandK, Sign, TopK
from syncline.learning.evaluate import Evaluator
from syncline.learning.flat import FlatModule
from syncline.learning.foreign import DeclaredTask, optimizer_of
from syncline.learning.gossip import Gossip
from syncline.learning.gradient import GradientFunction, WorkerBatches
from syncline.learning.layout import Layout, blocks
from syncline.learning.local_steps import LocalRule, LocalSteps
from syncline.learning.optimizer import OPTIMIZERS, Averaged, InParts, Optimizer, SkipsUnreached
from syncline.learning.parameters import Parameters, Version
from syncline.learning.probe import probe
from syncline.learning.schedule import EpochClock, build_schedule
from syncline.learning.task import TASKS, Classification, Task, logits_of
from syncline.learning.update import RULES, UpdateRule
from syncline.models import build
from syncline.shapes import Shape, num_values, sizes
from syncline.targets import fault
from syncline.timing.draws import BLOCK

# Of batches that are alike, which CUDA graphs were tried with.
TASKS_IN_GRAPHS = ("classification", "language", "next_token")
# Of a module, which the engines call with these arguments.
METHODS: dict[str, tuple[Any, ...]] = {
    "train": (True,),
    "eval": (),
    "parameters": (),
    "named_parameters": (),
    "named_buffers": (),
    "named_modules": (),
}
READ_AT_ONCE = 1000  # samples, for their labels
DATA_SEED = 0  # of what a data set of the user's own draws when it is made


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

    def local_steps(self, config: RunConfig, worker: int) -> LocalSteps:
        """What this worker computes for a push; its optimizer is its own."""
        local, rounds = config.local, config.rounds(self.num_train).of(worker)
        options = config.optimizer if local.optimizer is None else local.optimizer
        schedule = build_schedule(options.lr, **asdict(options.schedule))
        layout = self.flat.layout
        epochs_a_batch = config.cluster.workers * config.batch_size / self.num_train
        return LocalSteps(
            self.gradient,
            rounds,
            rate=lambda place: schedule.rate(place * epochs_a_batch),
            weight_decay=0.0 if local.optimizer else options.weight_decay,
            optimizer=None
            if local.optimizer is None
            else _stepping(local.optimizer, layout, "torch", has_own_network(config)),
            skips_unreached=has_own_network(config),
            keep=local.keep,
            fragments=_fragments(config, layout) if local.fragments > 1 else (),
            overlap=local.overlap,
            rule=build_local_rule(config),
        )

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
            draws no random numbers, and no part is the user's own.

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
    in_graphs = in_graphs and not flat.is_random and not has_own
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


def pick_device(config: RunConfig, index: int = 0) -> torch.device:
    """The device of `config.device`; with several GPUs, process `index` takes number `index` modulo their number.

    Raises:
        ConfigError: there is no such device.
    """
    device = torch.device("cuda" if config.device != "cpu" and torch.cuda.is_available() else "cpu")
    if config.device == "cuda" and device.type == "cpu":
        raise ConfigError("device=cuda, but torch sees no CUDA device; use device=auto or device=cpu")
    return torch.device("cuda", index % torch.cuda.device_count()) if device.type == "cuda" else device


def configure_torch(config: RunConfig) -> None:
    """The threads of this process. On a GPU the same seed gives the same bits, and float32 is what it says.

    By default cuDNN's convolutions round their inputs to TensorFloat-32.
    """
    torch.set_num_threads(config.threads)
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.allow_tf32 = False


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


def check_memory(config: RunConfig) -> None:
    """Refuse a run that cannot fit into the memory of this machine, before anything is built or loaded.

    Raises:
        ConfigError: it does not fit, or as `least_bytes`.
    """
    parts, available = least_bytes(config), _memory_bytes()
    needs, most = sum(parts.values()), max(parts, key=lambda key: parts[key])
    if needs > available:
        rule = f"the run must fit into {available / 1e9:,.1f} GB of memory"
        raise ConfigError(f"{rule}, got one that needs at least {needs / 1e9:,.1f} GB, most of it for {most}")


def _memory_bytes() -> float:
    """Memory of this machine, or the limit of this process; infinite where neither is known."""
    try:
        import resource
    except ImportError:  # Windows
        return math.inf
    installed = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    return installed if limit == resource.RLIM_INFINITY else min(installed, limit)


def least_bytes(config: RunConfig) -> dict[str, int]:
    """A lower bound of the memory of a run in virtual time, by the key that determines it; without activations.

    Raises:
        ConfigError: the model does not fit the data.
    """
    cluster, scenario, strategy = config.cluster, config.scenario, config.strategy
    of_shards = (scenario.push_delay, scenario.pull_delay, cluster.network.jitter, cluster.network.jitter)
    streams = 1 + cluster.shards * sum(source is not None for source in of_shards)
    tables = 64 * cluster.shards  # each shard knows every worker
    parts = {"cluster.workers": cluster.workers * (8 * BLOCK * streams + tables)}
    shape = config.dataset.shape
    if config.gradients and shape is not None:
        is_joined = strategy.neighbours is None and (strategy.collective is None or strategy.collective.peers is None)
        vectors = (3 - is_joined) * cluster.workers if strategy.has_replicas else 2 + getattr(strategy, "k", 1)
        size = 4 * count_parameters(config)[0]
        parts["model"] = size * vectors
        parts["compress"] = size * cluster.workers * _num_kept(config)
        parts["batch_size"] = 4 * num_values(shape) * config.batch_size
        parts["dataset"] = num_values(shape) * (config.dataset.known_num_train or 0)
    return parts


def _num_kept(config: RunConfig) -> int:
    """Vectors that compression keeps of each worker."""
    compress = config.compress
    if config.local.fragments > 1:
        return 3  # the replica, too
    if not isinstance(compress, FeedbackConfig):
        return 0
    # A pull is a version of its own.
    return 4 if config.strategy.has_replicas else compress.feedback + 2 * compress.pulls


def build_optimizer(config: RunConfig, layout: Layout) -> Optimizer:
    """The optimizer of one block, or of all weights. Raises ConfigError if the user's own is none, or cannot step it.

    Args:
        layout: of the block.
    """
    skips, decay = has_own_network(config) or config.local.fragments > 1, config.optimizer.average_decay
    optimizer = _stepping(config.optimizer, layout, config.momentum, skips)
    return optimizer if decay is None else Averaged(optimizer, decay)


def _stepping(own: OptimizerConfig, layout: Layout, momentum: str, skips: bool) -> Optimizer:
    """Of the run or of its local steps; `skips` tensors, or fragments, that a gradient has not reached."""
    if not isinstance(own, OwnPart):
        return _built_in(own, layout, momentum, skips)
    try:
        return optimizer_of(own.name, own.found(), own.arguments, layout, own.lr, own.weight_decay)
    except ValueError as error:
        raise ConfigError(str(error)) from None


def _built_in(own: OptimizerConfig, layout: Layout, momentum: str, skips: bool) -> Optimizer:
    options = asdict(own)
    for key in ("name", "lr", "schedule", "clip_norm", "average_decay", "decays"):
        del options[key]
    if own.name == "sgd":
        options["form"] = momentum

    def of_part(place: slice, weight_decay: float) -> Optimizer:
        make = partial(OPTIMIZERS[own.name], **options | {"weight_decay": weight_decay})
        return SkipsUnreached(make, layout.within(place)) if skips else make()

    if own.decays == "all" or not own.weight_decay:
        return of_part(slice(0, layout.size), own.weight_decay)
    parts = layout.matrices()
    decay = {place.start: own.weight_decay * is_matrix for place, is_matrix in parts}
    return InParts(lambda place: of_part(place, decay[place.start]), [place for place, _ in parts])


def build_update(config: RunConfig) -> UpdateRule:
    """What a shard makes of the pushes of an update. Raises ConfigError: the user's own is no UpdateRule."""
    own: UpdateConfig = config.update
    if not isinstance(own, OwnPart):
        options = asdict(own)
        return RULES[options.pop("name")](**options)
    rule = own.made()
    if not isinstance(rule, UpdateRule):
        must = f"{own._target_} must return a syncline.learning.update.UpdateRule"
        raise ConfigError(f"update={own.name}: {must}, got {type(rule).__name__}")
    return rule


def build_local_rule(config: RunConfig) -> LocalRule | None:
    """What one worker changes in its local steps. Raises ConfigError: the user's own is no LocalRule."""
    own = config.local
    if not isinstance(own, OwnPart):
        return None
    rule = own.made()
    if not isinstance(rule, LocalRule):
        must = f"{own._target_} must return a syncline.learning.local_steps.LocalRule"
        raise ConfigError(f"local={own.name}: {must}, got {type(rule).__name__}")
    return rule


def _fragments(config: RunConfig, layout: Layout) -> list[list[slice]]:
    """Places in the vector of each fragment, of which every shard has a part."""
    num = config.local.fragments
    of_shards = [
        [slice(block.start + place.start, block.start + place.stop) for place in blocks(block.stop - block.start, num)]
        for block in shard_blocks(config, layout)
    ]
    return [list(places) for places in zip(*of_shards, strict=True)]


def build_compression(config: RunConfig) -> Compression | None:
    """Of pushes; None if they are sent as they are."""
    compress = config.compress
    if isinstance(compress, RandkConfig) and not compress.feedback:
        return RandK(compress.density, unbiased=True)
    is_whole = compress.name == "none" and config.local.fragments == 1
    return None if is_whole else build_feedback_compression(config)


def build_feedback_compression(config: RunConfig) -> Compression:
    """Where what is left out of one message is in a later one. Raises ConfigError: the user's own is none."""
    compress = config.compress
    if config.local.fragments > 1:
        return Fragment(config.local.fragments)
    if isinstance(compress, OwnPart):
        made: Compression = compress.made()
        if absent := [name for name in ("size", "encode", "decode") if not callable(getattr(made, name, None))]:
            must = f"{compress._target_} must return a compression, with size, encode and decode"
            raise ConfigError(f"compress={compress.name}: {must}, got a {type(made).__name__} without {absent[0]}")
        return made
    if isinstance(compress, SparseConfig):
        return RandK(compress.density) if isinstance(compress, RandkConfig) else TopK(compress.density)
    return Int8() if isinstance(compress, Int8Config) else Sign()


def build_compressor(config: RunConfig, worker: int, layout: Layout) -> PushCompressor | None:
    """Of one worker's pushes, or what it joins with others'; None if they are sent as they are."""
    compression, compress = build_compression(config), config.compress
    if compression is None or config.strategy.has_replicas:
        return None
    feedback = isinstance(compress, FeedbackConfig) and compress.feedback
    return PushCompressor(compression, shard_blocks(config, layout), feedback, worker, config.seed)


def build_gossip(config: RunConfig, worker: int, weights: Tensor) -> list[Gossip] | None:
    """Of one replica with its groups of each turn; None if there are none, or weights are sent as they are.

    Args:
        weights: the initial ones.
    """
    compress = config.compress
    if not config.strategy.has_replicas or not isinstance(compress, FeedbackConfig):
        return None
    compression = build_feedback_compression(config)
    assert config.strategy.collective is not None
    turns = range(config.strategy.collective.turns(config.cluster.workers))
    return [Gossip(compression, weights, compress.consensus, worker, config.seed) for _ in turns]


def build_pull_compressor(config: RunConfig, worker: int, shard: int) -> PullCompressor:
    """Of what one shard sends one worker, where `config.compresses_pulls`."""
    return PullCompressor(build_feedback_compression(config), worker, shard, config.seed)


def build_rate(config: RunConfig, num_train: int) -> Callable[[int, int], float]:
    """(samples, updates) so far -> learning rate of the next update."""
    schedule = build_schedule(config.optimizer.lr, **asdict(config.optimizer.schedule))
    rounds = config.rounds(num_train)
    clock = EpochClock(config.lr_clock, num_train, config.cluster.workers, config.batch_size, rounds)
    return lambda samples, updates: schedule.rate(clock.epoch(samples, updates))


def shard_blocks(config: RunConfig, layout: Layout) -> list[slice]:
    """The block of each shard, of nearly equal size; of whole tensors, where the optimizer looks at tensors.

    Raises:
        ConfigError: there are fewer tensors than shards.
    """
    num_shards = config.cluster.shards if config.strategy.has_server else 1
    if not isinstance(config.optimizer, OwnPart):
        return blocks(layout.size, num_shards)
    try:
        return layout.blocks(num_shards)
    except ValueError as error:
        raise ConfigError(f"cluster.shards with optimizer={config.optimizer.name}: {error}") from None


def build_parameters(config: RunConfig, number: int, flat: FlatModule, num_train: int, is_whole: bool) -> Parameters:
    """One shard of the parameter server, at the initial weights.

    Args:
        is_whole: gradients are the whole flat vector, of which the shard takes its block; else its block alone.
    """
    block = shard_blocks(config, flat.layout)[number]
    return Parameters(
        block=block if is_whole else slice(0, block.stop - block.start),
        current=Version(
            flat.weights[block].clone(), flat.buffers.clone() if number == 0 else flat.buffers.new_empty(0)
        ),
        optimizer=build_optimizer(config, flat.layout.within(block).cut(config.local.fragments)),
        rate=build_rate(config, num_train),
        num_workers=config.cluster.workers,
        divide_by_workers=config.async_gradient == "mean_over_workers",
        rule=build_update(config),
    )
