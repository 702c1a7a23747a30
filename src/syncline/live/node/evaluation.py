"""Evaluation of the states that shards or replicas have written, in a process of its own, apart from the timed run.

coordinator -> evaluator   [number, folder of the record, kind, arguments...], kind being a method of SnapshotEvaluator
evaluator -> coordinator   [number, answer]; [number] after an error, which is written down; [] when it starts

The line between them outlives both, as the keeper holds its ends. When the evaluator starts again the coordinator asks
again; what was answered is not answered twice.
"""

import json
import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from syncline.assembly.device import configure_torch, pick_device
from syncline.assembly.problem import build_problem
from syncline.config import RunConfig, from_plain
from syncline.learning.evaluate import are_finite, evaluated_parts
from syncline.live.node.process import MAX_MESSAGE_BYTES, note_error
from syncline.monitor import evaluation_row
from syncline.records.snapshots import read_state
from syncline.records.store import read_run_config


def evaluate(line: socket.socket) -> int:
    """Evaluate what the coordinator asks for, until an error. Returns the exit code."""
    evaluator, answered = None, 0
    line.sendall(json.dumps([]).encode())
    while True:
        number, folder, kind, *arguments = json.loads(line.recv(MAX_MESSAGE_BYTES))
        if number == answered:
            continue
        try:
            if evaluator is None:
                config = from_plain(read_run_config(Path(folder)))
                if config.live.evaluate == "during":
                    os.nice(19)
                evaluator = SnapshotEvaluator(config)
            answer = [number, getattr(evaluator, kind)(*arguments)]
        except Exception as error:
            note_error(Path(folder), "evaluator", 0, error)
            line.sendall(json.dumps([number]).encode())
            return 1
        line.sendall(json.dumps(answer).encode())
        answered = number


class SnapshotEvaluator:
    """Metrics of states that all shards have written, or all replicas."""

    def __init__(self, config: RunConfig) -> None:
        configure_torch(config)
        self._device = pick_device(config)
        problem = build_problem(config, self._device)
        self._is_mean = config.strategy.evaluates_mean
        self._evaluator = problem.evaluator()
        self.num_train = problem.num_train
        self.num_parameters = problem.flat.weights.numel()
        self.best_possible = problem.best_possible

    def about(self) -> dict[str, Any]:
        """What the run's observer is to know."""
        return {name: getattr(self, name) for name in ("num_train", "num_parameters", "best_possible")}

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
        weights, buffers, distance = evaluated_parts(on_device, self._is_mean)
        train_loss, divergence = about[0]["train_loss"], {}
        if distance is not None:
            divergence = {"divergence": distance}
            losses = [state["train_loss"] for state in about if state["train_loss"] is not None]
            train_loss = sum(losses) / len(losses) if losses else None
        metrics = self._evaluator(weights, buffers)
        time_s = max(state["time_s"] for state in about)
        updates, samples = (min(state[key] for state in about) for key in ("updates", "samples"))
        first = {name: about[0][name] for name in ("learning_rate", "waits_for")}
        more = {"train_loss": train_loss, **first, "wall_s": wall_s, **divergence}
        return evaluation_row(time_s, updates, samples, self.num_train, metrics, **more)
