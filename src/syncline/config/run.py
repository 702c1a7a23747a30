"""One run, complete: a frozen config, its identity, and the way back from YAML."""

import dataclasses
import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from math import inf
from typing import Any, cast, get_args, get_origin, get_type_hints

from syncline.checks import SEEDS, Checked, ConfigError, check, check_choice, check_numbers, one_of, ranged
from syncline.config import runners
from syncline.config.compression import COMPRESSIONS, CompressConfig, FeedbackConfig
from syncline.config.datasets import DATASETS, ArraysConfig, DatasetConfig, DigitsConfig, OwnDatasetConfig
from syncline.config.local_steps import LocalStepsConfig
from syncline.config.models import MODELS, AnyModelConfig, ModelConfig
from syncline.config.optimizers import OPTIMIZERS, OptimizerConfig, SgdConfig
from syncline.config.own import OwnPart, restored
from syncline.config.tasks import TASKS, OwnTaskConfig, TaskConfig
from syncline.config.updates import UPDATES, UpdateConfig
from syncline.datasets.files import ABSENT, PUBLISHED, fingerprint, fingerprint_of
from syncline.learning.schedule import LR_CLOCKS
from syncline.metrics import METRICS
from syncline.rounds import Rounds
from syncline.strategies import STRATEGIES
from syncline.strategies.collective import Collective, is_regular
from syncline.strategies.dssp import DsspOptions
from syncline.strategies.protocol import StrategyOptions
from syncline.timing.cluster import ClusterConfig, ScenarioConfig

# Groups whose choices have different fields: name -> class.
TABLES: dict[str, Mapping[str, type[Any]]] = {
    "model": MODELS,
    "dataset": DATASETS,
    "task": TASKS,
    "optimizer": OPTIMIZERS,
    "strategy": STRATEGIES,
    "update": UPDATES,
    "compress": COMPRESSIONS,
    "runner": runners.RUNNERS,
    "tracker": runners.TRACKERS,
}
# Groups whose parts may be the user's own -> options of every part.
OWN_BASES: dict[str, type[Any]] = {
    "model": AnyModelConfig,
    "dataset": OwnDatasetConfig,
    "task": OwnTaskConfig,
    "optimizer": OptimizerConfig,
    "strategy": StrategyOptions,
    "update": UpdateConfig,
    "local": LocalStepsConfig,
    "compress": FeedbackConfig,
}
ASYNC_GRADIENTS = ("mean", "mean_over_workers")
MOMENTUM_FORMS = ("torch", "lr_inside")
PRECISIONS = ("float32", "bfloat16")
DEVICES = ("auto", "cpu", "cuda")


@dataclass(frozen=True)
class TargetConfig:
    """Ends a run at the first evaluation that reaches `value`."""

    metric: str | None = None  # of the task; None: its first
    value: float | None = None  # None: never


@dataclass(frozen=True)
class RunConfig(Checked):
    """One run, complete."""

    model: AnyModelConfig = field(default_factory=ModelConfig)
    dataset: DatasetConfig = field(default_factory=DigitsConfig)
    task: TaskConfig = field(default_factory=TaskConfig)
    optimizer: OptimizerConfig = field(default_factory=SgdConfig)
    strategy: StrategyOptions = field(default_factory=DsspOptions)
    update: UpdateConfig = field(default_factory=UpdateConfig)
    local: LocalStepsConfig = field(default_factory=LocalStepsConfig)
    compress: CompressConfig = field(default_factory=CompressConfig)
    cluster: ClusterConfig = field(default_factory=ClusterConfig)
    scenario: ScenarioConfig = field(default_factory=ScenarioConfig)
    runner: runners.Runner = field(default_factory=runners.SimulateConfig)
    tracker: runners.Tracker = field(default_factory=runners.NoTrackerConfig)
    seed: int = ranged(0, SEEDS)  # of weights, data order, compute times and delays, each its own stream
    batch_size: int = ranged(32, ">= 1")  # of one worker
    epochs: float | None = ranged(None, "> 0")  # of the whole training set; None: 30 if no other limit is set
    max_updates: int | None = ranged(None, "> 0")  # of the (first) shard; a run ends at the first limit it reaches
    max_time_s: float | None = ranged(None, "> 0")  # virtual or wall seconds
    target: TargetConfig = field(default_factory=TargetConfig)
    eval_every_epochs: float = ranged(1.0, "> 0")
    gradients: bool = True  # False: times alone, nothing is learned
    lr_clock: str = one_of("samples", LR_CLOCKS)  # what the schedule counts as an epoch
    async_gradient: str = one_of("mean", ASYNC_GRADIENTS)  # an update of d pushes from P workers divides by d, or by P
    momentum: str = one_of("torch", MOMENTUM_FORMS)  # whether the rate is kept inside the momentum buffer
    accumulate: int = ranged(1, ">= 1")  # pieces in which a gradient of a mini-batch is computed, to need less memory
    precision: str = one_of("float32", PRECISIONS)  # of the forward and backward pass; weights are always float32
    device: str = one_of("auto", DEVICES)
    threads: int = ranged(1, "in 1 .. 512")  # of one process; each takes 8 MB of address space

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.epochs is None and self.max_updates is None and self.max_time_s is None:
            object.__setattr__(self, "epochs", 30.0)
        self._check_names()
        check_numbers(self)
        self._check_task()
        self._check_optimizer()
        rule = f"accumulate must be <= batch_size = {self.batch_size}"
        check(self.accumulate <= self.batch_size, rule, self.accumulate)
        self._check_pushes()
        self._check_samples()
        self._check_target()
        self._check_cluster()
        if isinstance(self.runner, runners.SimulateConfig):
            rule = "runner.parameters=true needs gradients=true: times alone have no parameters"
            check(self.gradients or not self.runner.parameters, rule, f"gradients={str(self.gradients).lower()}")
        if isinstance(self.runner, runners.LiveConfig):
            check(self.gradients, f"runner={self.runner.name} learns: gradients must be true", self.gradients)
            rule = (
                f"dataset.sharing must be partition for runner={self.runner.name} with a parameter server: "
                "its processes have no common order of beginning"
            )
            is_known = self.dataset.sharing == "partition" or not self.strategy.has_server
            check(is_known, rule, self.dataset.sharing)
            self._check_initial_workers(self.runner.initial_workers)
        if isinstance(self.runner, runners.MultinodeConfig):
            rule = "runner.shards_on=own needs a parameter server"
            check(self.strategy.has_server or self.runner.shards_on == "workers", rule, "none")
            if self.runner.nodes is not None:
                self.runner.ranks(self.num_ranks)

    def _check_initial_workers(self, count: int | None) -> None:
        """Workers may be added where the strategy can do without them."""
        rule = f"runner.initial_workers must be in 1 .. {self.cluster.workers}, cluster.workers, or null"
        check(count is None or 1 <= count <= self.cluster.workers, rule, count)
        rule = f"runner.initial_workers must be null: strategy={self.strategy.name} needs all workers from the start"
        check(count is None or self.strategy.elastic, rule, count)

    def _check_names(self) -> None:
        """Each part is of the class that its name selects, or the user's own; a record holds the name only."""
        for group, table in TABLES.items():
            part = getattr(self, group)
            if isinstance(part, OwnPart):
                continue
            name = getattr(part, "name", None)
            rule = f"{group} must be what its name says, one of {', '.join(table)}"
            check(isinstance(name, str) and table.get(name) is type(part), rule, f"{type(part).__name__}, name={name}")

    def _check_samples(self) -> None:
        """Enough samples for the workers and a mini-batch; if only the data show their number, `Problem` checks."""
        if self.dataset.concentration is not None:
            rule = "dataset.concentration goes with task=classification, whose samples have classes"
            check(self.batch_task == "classification", rule, self.batch_task)
            rule = "dataset.sharing must be partition with dataset.concentration"
            check(self.dataset.sharing == "partition", rule, self.dataset.sharing)
        known = self.dataset.known_num_train if self.gradients else self.dataset.num_train
        if known is not None:
            self.check_num_train(known)

    def steps_an_epoch(self, num_train: int) -> Fraction:
        """Steps of all workers in which they use `num_train` samples; only for collectives."""
        return Fraction(num_train, self.cluster.workers * self.batch_size * self.local.steps)

    def rounds(self, num_train: int) -> Rounds:
        """Which mini-batches each push of a worker has."""
        share = Fraction(num_train, self.cluster.workers * self.batch_size)
        single = math.ceil(Fraction(str(self.local.after_epochs)) * share)
        return Rounds(self.local.steps, single, self._steps_by_worker() if self.local.by_speed else ())

    def _steps_by_worker(self) -> tuple[int, ...]:
        """H times the seconds of the fastest worker over each one's own, rounded down (Liu et al. 2024, DyLU)."""
        seconds, slow = self.cluster.gradient_s, self.scenario.slow
        own = [seconds[worker % len(seconds)] * slow.get(worker, 1.0) for worker in range(self.cluster.workers)]
        return tuple(max(1, int(self.local.steps * min(own) / each + 1e-9)) for each in own)

    def check_num_train(self, num_train: int) -> None:
        """Check that `num_train` training samples are enough. Raises ConfigError: they are not."""
        has = f"dataset={self.dataset.name} has {num_train:,} training samples"
        check(self.batch_size <= num_train, f"batch_size must be <= {num_train}: {has}", self.batch_size)
        fits = not self.gradients or self.cluster.workers <= num_train
        check(fits, f"cluster.workers must be <= {num_train}: {has}", self.cluster.workers)
        collective = self.strategy.collective
        steps, least = self.steps_an_epoch(num_train), 0 if collective is None else collective.least_steps_an_epoch
        rule = f"an epoch must have {least} steps of all workers or more for these options of the strategy"
        check(steps >= least, f"{rule}: {has}", f"{float(steps):g}")

    def _check_target(self) -> None:
        """The run can observe its target, and the metric can have this value."""
        metric, value = self.target.metric or self.metrics[0], self.target.value
        if value is None:
            return
        check(self.gradients, "target.value must be null with gradients=false: nothing is learned", value)
        during = not isinstance(self.runner, runners.LiveConfig) or self.runner.evaluate == "during"
        check(during, "a target needs runner.evaluate=during", getattr(self.runner, "evaluate", None))
        least, most = self.task.range_of(metric)
        hint = f" ({value / 100:g} for {value:g} %)" if most == 1 < value <= 100 else ""
        within = f"in {least} .. {most}" if most < inf else f">= {least}"
        check(least <= value <= most, f"target.value must be {within} for target.metric={metric}{hint}", value)

    def _check_cluster(self) -> None:
        """The strategy supports the cluster, and injected delays concern processes that exist."""
        cluster, scenario = self.cluster, self.scenario
        try:
            self.strategy.check_cluster(cluster.workers, cluster.shards)
        except ValueError as error:
            raise ConfigError(str(error)) from None
        if self.strategy.collective is not None:
            self._check_groups(self.strategy.collective)
        if scenario.loses_workers:
            key = "scenario.absences" if scenario.absences else "scenario.up"
            rule = f"{key} needs a strategy that goes on without a worker, at a server"
            check(self.strategy.elastic and self.strategy.has_server, rule, f"strategy={self.strategy.name}")
            rule = f"{key} goes with virtual time: runner must be simulate"
            check(not isinstance(self.runner, runners.LiveConfig), rule, self.runner.name)
        places = {"slow": "workers", "delayed_workers": "workers", "absences": "workers", "slow_shards": "shards"}
        for key, kind in places.items():
            num = getattr(cluster, kind)
            absent = [number for number in getattr(scenario, key) if number >= num]
            check(not absent, f"scenario.{key} must name {kind} in 0 .. {num - 1}, cluster.{kind} being {num}", absent)
        for key, delay in {
            "scenario.push_delay": scenario.push_delay,
            "scenario.pull_delay": scenario.pull_delay,
            "scenario.slow_shards": scenario.slow_shards,
            "cluster.network.jitter": cluster.network.jitter,
        }.items():
            rule = f"{key} must be empty: strategy={self.strategy.name} has no server here to push to or pull from"
            check(not delay or self.strategy.has_server, rule, delay)

    def _check_groups(self, collective: Collective) -> None:
        """The groups of each turn divide the workers, alike whenever they are asked for."""
        num, rule = self.cluster.workers, f"strategy={self.strategy.name}: groups(turn, num_workers) must "
        if collective.peers is not None:
            rule = rule.replace("groups", "peers")
        for turn in range(collective.turns(num)):
            averaged = list(collective.of_turn(turn, num))
            divides = sorted(worker for each in averaged for worker in each.receivers) == list(range(num))
            groups = [each.members for each in averaged]
            check(divides, f"{rule}have each of {num} workers in one group", groups)
            if collective.peers is not None:
                known = all(set(each) <= set(range(num)) and len(set(each)) == len(each) for each in groups)
                check(known, f"{rule}name other workers of {num}, each once", collective.peers(turn, num))
            check(averaged == list(collective.of_turn(turn, num)), f"{rule}return the same at every call", groups)
            if self.optimizer.average_decay is not None:
                must = f"optimizer.average_decay must be null with strategy={self.strategy.name}"
                why = "whose workers do not receive from as many as they send to"
                check(is_regular(averaged), f"{must} here, {why}", self.optimizer.average_decay)

    def _check_optimizer(self) -> None:
        """Only plain SGD supports the rate inside its buffer; only our optimizers know which tensors decay."""
        rule = f"optimizer.decays must be all with optimizer={self.optimizer.name}, which is your own"
        check(self.optimizer.decays == "all" or not isinstance(self.optimizer, OwnPart), rule, self.optimizer.decays)
        plain = isinstance(self.optimizer, SgdConfig) and not self.optimizer.nesterov
        rule = "momentum=lr_inside needs optimizer=sgd without nesterov"
        check(plain or self.momentum == "torch", rule, self.optimizer.name)

    def _check_pushes(self) -> None:
        """Local steps and compression go with the optimizer, the data's order and the strategy."""
        local, rule = self.local, f"update must be mean where strategy={self.strategy.name} has no server"
        check(self.strategy.has_server or self.update.name == "mean", rule, self.update.name)
        if self.update.name not in ("mean", "staleness_aware"):
            why = f"with update={self.update.name}, which compares weights with those sent"
            check(local.fragments == 1, f"local.fragments must be 1 {why}", local.fragments)
            check(not self.compresses_pulls, f"compress.pulls must be false {why}", True)
        if self.update.name == "elastic":
            rule = "local.optimizer must be set with update=elastic, which goes by what workers have after their steps"
            check(local.optimizer is not None, rule, None)
        rule = f"local.keep must be 0 where strategy={self.strategy.name} has no server"
        check(self.strategy.has_server or not local.keep, rule, local.keep)
        if local.fragments > 1:
            self._check_fragments()
        if local.optimizer is None and local.steps > 1:
            rule = (
                f"local.optimizer must be set with optimizer={self.optimizer.name}: without it steps are of plain SGD"
            )
            check(isinstance(self.optimizer, SgdConfig), rule, None)
            rule = "local.optimizer must be set with optimizer.decays=matrices: without it all weights decay alike"
            check(self.optimizer.decays == "all", rule, None)
        if self.strategy.collective is not None and self.strategy.collective.bucket_bytes is not None:
            rule = "{} with strategy.impl=overlap, which sends parts early"
            is_plain = local.steps == 1 and local.optimizer is None
            check(is_plain, rule.format("local.steps must be 1, local.optimizer null,"), local.steps)
            check(self.accumulate == 1, rule.format("accumulate must be 1"), self.accumulate)
            check(self.compress.name == "none", rule.format("compress must be none"), self.compress.name)
            check(
                self.optimizer.clip_norm is None,
                rule.format("optimizer.clip_norm must be null"),
                self.optimizer.clip_norm,
            )
        if local.optimizer is not None:
            rule = "optimizer.clip_norm must be null with local.optimizer, whose clip_norm limits the gradients"
            check(self.optimizer.clip_norm is None, rule, self.optimizer.clip_norm)
            rule = "local.optimizer.average_decay must be null: optimizer.average_decay averages what is evaluated"
            check(local.optimizer.average_decay is None, rule, local.optimizer.average_decay)
        if local.steps > 1 or local.optimizer is not None:
            is_known = self.dataset.sharing == "partition" or not self.strategy.has_server
            rule = "dataset.sharing must be partition with local.steps > 1 or local.optimizer"
            check(is_known, rule, self.dataset.sharing)
        if local.by_speed:
            where = "local.by_speed must be false where"
            rule = f"{where} strategy={self.strategy.name} has no server"
            check(self.strategy.has_server, rule, True)
            check(self.lr_clock == "samples", f"{where} lr_clock=server_updates counts pushes of equal size", True)
        if local.steps > 1:
            collective = self.strategy.collective
            is_even = collective is None or not (local.after_epochs and collective.least_steps_an_epoch)
            check(is_even, "local.after_epochs must be 0 with strategy.parity=epoch", local.after_epochs)
        if self.strategy.neighbours is not None:
            self._check_peers()
        if isinstance(self.compress, FeedbackConfig) and self.strategy.collective is not None:
            self._check_compressed(self.strategy.collective, self.compress)

    def _check_fragments(self) -> None:
        """Each push is answered, by the fragment that it was of."""
        num, strategy = self.local.fragments, self.strategy
        answers = strategy.has_server and not strategy.interrupts and strategy.pull_rule(self.cluster.shards) is None
        rule = f"local.fragments must be 1 with strategy={strategy.name}, where not each push has its answer"
        check(answers, rule, num)
        check(self.compress.name == "none", "compress must be none with local.fragments > 1", self.compress.name)
        rule = "local.fragments must be 1 with an optimizer of your own, which needs whole tensors"
        check(not isinstance(self.optimizer, OwnPart), rule, num)

    def _check_peers(self) -> None:
        """Asynchronous peers send whole replicas, each learns from samples of its own."""
        name = f"strategy={self.strategy.name}"
        check(self.compress.name == "none", f"compress must be none with {name}", self.compress.name)
        rule = f"dataset.sharing must be partition with {name}, whose workers have no common order of beginning"
        check(self.dataset.sharing == "partition", rule, self.dataset.sharing)

    def _check_compressed(self, collective: Collective, compress: FeedbackConfig) -> None:
        where = f"strategy={self.strategy.name} has no server here"
        check(not compress.pulls, f"compress.pulls must be false: {where} to pull from", compress.pulls)
        rule = f"compress must be none where strategy={self.strategy.name} sends tensors one by one"
        check(not collective.sends_tensors_singly, rule, compress.name)
        check(collective.peers is None, f"compress must be none with strategy={self.strategy.name}", compress.name)
        rule = "compress.feedback must be true where replicas send each other changes: what one leaves out comes later"
        check(compress.feedback or not collective.replicas, rule, compress.feedback)

    def _check_task(self) -> None:
        """The task suits the model, the data suit the task, and the target's metric is one of it."""
        model, dataset, task = self.model, self.dataset, self.task_name
        is_own = isinstance(self.task, OwnPart)
        learned = " or ".join(model.tasks)
        if model.tasks and not is_own:
            names = ", ".join(model.tasks)
            rule = f"model={model.name} learns {learned}: task must be auto, {names} or one of your own"
            check(task in model.tasks, rule, task)
        if not is_own:
            suitable = ", ".join(sorted(name for name, kind in DATASETS.items() if task in kind.tasks))
            learns = f"model={model.name} learns {task}" if model.tasks else f"task={task}"
            check(task in dataset.tasks, f"{learns}: dataset must be one of {suitable}", dataset.name)
        rule = f"strategy.impl=overlap steps parts that cut tensors, which optimizer={self.optimizer.name} needs whole"
        collective = self.strategy.collective
        cuts = collective is not None and collective.replicas and collective.bucket_bytes is not None
        check(not (cuts and isinstance(self.optimizer, OwnPart)), rule, "overlap")
        augment = getattr(dataset, "augment", False)
        check(self.batch_task == "classification" or not augment, f"dataset.augment must be false for {task}", augment)
        if self.target.metric is not None:
            check_choice("target.metric", self.target.metric, self.metrics)

    @property
    def compresses_pulls(self) -> bool:
        """A worker is sent how its block has changed."""
        return self.local.fragments > 1 or (isinstance(self.compress, FeedbackConfig) and self.compress.pulls)

    @property
    def keeps_state_at_workers(self) -> bool:
        """Workers keep something from push to push: the state of an optimizer, or what their pushes left out."""
        feeds_back = isinstance(self.compress, FeedbackConfig) and self.compress.feedback
        return self.local.optimizer is not None or feeds_back

    @property
    def live(self) -> runners.LiveConfig:
        """The runner of real processes; only for those."""
        assert isinstance(self.runner, runners.LiveConfig), self.runner.name
        return self.runner

    @property
    def dead_s(self) -> float | None:
        """Seconds without an answer, after which a host is lost; None: there is one host."""
        return self.runner.dead_s if isinstance(self.runner, runners.MultinodeConfig) else None

    @property
    def num_ranks(self) -> int:
        """Of the torchrun job that makes a run of real processes: one a worker, and one for each shard of its own."""
        is_apart = isinstance(self.runner, runners.MultinodeConfig) and self.runner.shards_on == "own"
        return self.cluster.workers + self.cluster.shards * is_apart

    @property
    def metrics(self) -> tuple[str, ...]:
        """Of the task; the first one judges the run."""
        return tuple(self.task.metrics) if isinstance(self.task, OwnTaskConfig) else METRICS[self.task_name]

    @property
    def task_name(self) -> str:
        """As chosen; else the model's; else the first of the data set."""
        return self.batch_task if self.task.name == "auto" else self.task.name

    @property
    def batch_task(self) -> str:
        """The task by which the data set makes its batches: of a task of the user's own that of model or data set."""
        if self.task.name in METRICS:
            return self.task.name
        if isinstance(self.task, OwnPart) and isinstance(self.dataset, ArraysConfig | OwnDatasetConfig):
            return "own"  # whatever the targets are
        learned = self.model.tasks or self.dataset.tasks
        return next((task for task in self.dataset.tasks if task in learned), learned[0])

    def as_dict(self) -> dict[str, Any]:
        """Plain nested types, as in config.json of a record."""
        return dataclasses.asdict(self)

    @cached_property
    def identity(self) -> str:
        """Name of what the run computes: equal for two configs that must have the same result."""
        plain = self.as_dict()
        own = {group: part for group in OWN_BASES if isinstance(part := getattr(self, group), OwnPart)}
        for key in NOT_IN_IDENTITY:
            group, name = _place(plain, key)
            if key.partition(".")[0] not in own:  # whose every argument counts
                group.pop(name, None)
        for key in own:
            del plain[key]["_folder_"]
        if isinstance(self.local.optimizer, OwnPart):
            del plain["local"]["optimizer"]["_folder_"]
        if self.dataset.content not in (None, ABSENT):  # a text's path, too
            for name in ("files",) if "dataset" in own else ("path", "test_path"):
                plain["dataset"].pop(name, None)
        for measured in (each for each in _mappings(plain) if each.get("name") == "trace"):
            measured["path"] = ""
            if not measured["content"]:
                del measured["content"]
        for key, before in CAME_LATER.items():
            group, name = _place(plain, key)
            if name in group and group[name] in before:
                del group[name]
        digest = hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()[:10]
        model = f"{self.model.name}{getattr(self.model, 'depth', '')}" if self.gradients else "timing"
        return f"{self.strategy.name}-{model}-{self.dataset.name}-s{self.seed}-{digest}"


_NO_EFFECT: dict[str, tuple[str, ...]] = {
    "cluster": ("measured_workers",),  # a note of where the profile comes from
    "dataset": ("cache", "download", "loaders", "root"),  # where the data are, not what they are
    "local": ("name",),  # of a preset
    "model": ("download", "root"),
    "runner": (
        *("interface", "master_addr", "master_port", "ports", "print"),
        *("start", "start_command", "start_options"),
        *("checkpoint_every_epochs", "checkpoint_every_s", "start_timeout_s", "max_restarts"),
        *("hang_s", "leave_s", "dead_s"),
        *("hosts", "nproc_per_node"),  # their names and what each has; their number is in it
        *("evaluate", "events", "parameters"),  # when something is evaluated, and what is recorded
        "workers_at_once",  # no bit depends on it
    ),
}
NOT_IN_IDENTITY = (
    *(f"{group}.{name}" for group, names in _NO_EFFECT.items() for name in names),
    *("device", "threads"),  # environment.json names the machine
    "tracker",  # only mirrors the record
)

CAME_LATER: dict[str, tuple[Any, ...]] = {
    "task": ({"name": "auto"},),
    "update": ({"name": "mean"},),
    "accumulate": (1,),
    "optimizer.decays": ("all",),
    "local.optimizer.decays": ("all",),
    "local.by_speed": (False,),
    "local.keep": (0.0,),
    "local.fragments": (1,),
    "local.overlap": (False,),
    "local": ({"steps": 1, "after_epochs": 0.0, "optimizer": None},),
    "compress": ({"name": "none"},),
    "optimizer.schedule.from_epoch": (None,),
    "local.optimizer.schedule.from_epoch": (None,),
    "cluster.network.sharing": ("queue",),
    "cluster.network.later_weight": (1.0,),
    "cluster.network.regions": ([],),
    "cluster.network.between_gbps": (None,),
    "cluster.network.between_latency_s": (0.0,),
    "cluster.ready": ([0.33, 1.0],),
    "cluster.update_s": (0.0,),
    "runner.initial_workers": (None,),
    "scenario.delayed_workers": ([],),
    "scenario.up": (None,),
    "scenario.down": (None,),
    "scenario.absences": ({},),
    "dataset.content": (None, PUBLISHED),
    "dataset.label_noise": (0.0,),
    "dataset.sharing": ("partition",),
    "dataset.concentration": (None,),
    "dataset.validation": (None,),
    "strategy.bucket_mb": (1.0,),
    "strategy.f0": ("interval",),
    "strategy.parity": ("continues",),
    "strategy.evaluate": ("mean",),
}
"""Keys that were added later -> values equal to the behaviour before: with these, identities stay as they were."""


def _mappings(plain: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """All mappings within it, at any depth."""
    for value in plain.values():
        if isinstance(value, dict):
            yield value
            yield from _mappings(value)


def _place(plain: dict[str, Any], key: str) -> tuple[dict[str, Any], str]:
    """The group that holds a dotted key, and the key's name in it."""
    *groups, name = key.split(".")
    for group in groups:
        plain = plain.get(group) or {}  # local.optimizer may be None
    return plain, name


def with_content(config: RunConfig) -> RunConfig:
    """The config with the fingerprint of the data on this machine, if it reads any.

    Raises:
        ConfigError: the config requires another fingerprint, or a file cannot be read.
    """
    dataset = config.dataset
    if not config.gradients and dataset.shape is not None:
        return config
    found, asked = content_here(dataset), dataset.content
    if asked is None:
        return dataclasses.replace(config, dataset=dataclasses.replace(dataset, content=found))
    check(found in (asked, ABSENT), f"dataset.content must be {found}, as the data here have it, or null", asked)
    return config


def content_here(dataset: DatasetConfig) -> str:
    """The fingerprint of the data set's files on this machine. Raises ConfigError: a file cannot be read."""
    try:
        if isinstance(dataset, OwnDatasetConfig):
            return fingerprint_of(dataset.files)
        return fingerprint(dataset.loader_options())
    except OSError as error:
        raise ConfigError(f"dataset={dataset.name}: {error.filename} cannot be read ({error.strerror})") from None


def from_plain(plain: Mapping[str, Any]) -> RunConfig:
    """The config from `as_dict`, also after it was written as JSON. Raises ConfigError: it is of another version."""
    try:
        return cast(RunConfig, _from_plain(RunConfig, plain))
    except (TypeError, KeyError, AttributeError, ValueError) as error:
        raise ConfigError(f"a config of another version: {error}") from None


def _from_plain(kind: type[Any], plain: Mapping[str, Any]) -> Any:
    hints = get_type_hints(kind)
    values = dict(plain)
    for key, value in plain.items():
        if kind is RunConfig and (key in TABLES or (key in OWN_BASES and "_target_" in value)):
            values[key] = _part_from_plain(key, value)
        elif dataclasses.is_dataclass(hints[key]):
            values[key] = _from_plain(cast(type[Any], hints[key]), value)
        elif isinstance(value, Mapping) and "source" in value and kind is ScenarioConfig:  # an occasional delay
            values[key] = {**value["source"], "probability": value["probability"]}
        elif get_origin(hints[key]) is dict:  # JSON's keys are text
            of_keys, _ = get_args(hints[key])
            values[key] = {of_keys(name): each for name, each in value.items()}
    return kind(**values)


def _part_from_plain(group: str, plain: Mapping[str, Any]) -> Any:
    if "_target_" in plain:
        kind, values = restored(group, plain, OWN_BASES)
        return _from_plain(kind, values)
    return _from_plain(TABLES[group][plain["name"]], plain)
