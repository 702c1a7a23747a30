"""Evaluation of the states that shards or replicas have written, in a process of its own, apart from the timed run.

evaluator -> launcher   first num_train, num_parameters, best_possible
launcher -> evaluator   row (paths of the parts of a state, wall_s), is_finite (paths)
evaluator -> launcher   the state's line of metrics.jsonl, or whether all its parameters are finite
"""

import json
import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from syncline.assembly import build_learner, configure_torch, pick_device
from syncline.config import RunConfig, from_plain
from syncline.learning.evaluate import are_finite, evaluated_replica
from syncline.live.process import Job
from syncline.monitor import evaluation_row
from syncline.records.snapshots import read_state
from syncline.records.store import read_run_config

MAX_REQUEST_BYTES = 1 << 17


def main(job: Job, index: int) -> int:
    """Evaluate what the launcher asks for, until it closes the connection, which is standard input. Returns 0."""
    config, connection = from_plain(read_run_config(Path(job.folder))), socket.socket(fileno=0)
    if config.live.evaluate == "during":
        os.nice(19)
    evaluator = SnapshotEvaluator(config)
    first = {name: getattr(evaluator, name) for name in ("num_train", "num_parameters", "best_possible")}
    connection.sendall(json.dumps(first).encode())
    while request := connection.recv(MAX_REQUEST_BYTES):
        kind, *arguments = json.loads(request)
        answer = evaluator.row(*arguments) if kind == "row" else evaluator.is_finite(*arguments)
        connection.sendall(json.dumps(answer).encode())
    return 0


class SnapshotEvaluator:
    """Metrics of states that all shards have written, or all replicas."""

    def __init__(self, config: RunConfig) -> None:
        configure_torch(config)
        self._device = pick_device(config)
        learner = build_learner(config, self._device)
        self._has_replicas, self._is_mean = config.strategy.replicas, config.strategy.evaluates_mean
        self._evaluator = learner.evaluator()
        self.num_train = learner.num_train
        self.num_parameters = learner.flat.weights.numel()
        self.best_possible = learner.best_possible

    def is_finite(self, paths: list[str]) -> bool:
        """Whether all parameters of this state are finite."""
        return are_finite([read_state(Path(path))[0]["weights"] for path in paths])

    def row(self, paths: list[str], wall_s: float) -> dict[str, Any]:
        """The line of metrics.jsonl for a state, given each shard's part of it, or each replica.

        The time is that of the latest part; updates and samples are those of the part with the fewest. The
        training loss is the first shard's, or the mean over all replicas.
        """
        parts = [read_state(Path(path)) for path in paths]
        about: list[Mapping[str, Any]] = [state for _, state in parts]
        on_device = [{name: tensor.to(self._device) for name, tensor in tensors.items()} for tensors, _ in parts]
        weights, buffers = [part["weights"] for part in on_device], [part["buffers"] for part in on_device]
        evaluated = [part.get("evaluated", part["weights"]) for part in on_device]
        train_loss, divergence = about[0]["train_loss"], {}
        if self._has_replicas:
            one, its_buffers, distance = evaluated_replica(weights, evaluated, buffers, self._is_mean)
            evaluated, buffers, divergence = [one], [its_buffers], {"divergence": distance}
            losses = [state["train_loss"] for state in about if state["train_loss"] is not None]
            train_loss = sum(losses) / len(losses) if losses else None
        metrics = self._evaluator(evaluated, buffers[0])
        time_s = max(state["time_s"] for state in about)
        updates, samples = (min(state[key] for state in about) for key in ("updates", "samples"))
        first = {name: about[0][name] for name in ("learning_rate", "waits_for")}
        more = {"train_loss": train_loss, **first, "wall_s": wall_s, **divergence}
        return evaluation_row(time_s, updates, samples, self.num_train, metrics, **more)
