"""What the workers of a collective learn in virtual time.

Shape legend: P workers, n parameters, m float buffer elements.
"""

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from syncline.assembly.problem import Problem
from syncline.learning.compression import PushCompressor
from syncline.learning.evaluate import evaluated_replica, final_state
from syncline.learning.gossip import Gossip, mean_of
from syncline.learning.local_steps import LocalSteps
from syncline.learning.optimizer import Optimizer
from syncline.learning.push_sum import PushSum, step_replica
from syncline.learning.worker_state import Stateful
from syncline.simulation.executors import Round, Serial
from syncline.simulation.tensor_table import TensorTable
from syncline.strategies.collective import Averaging


class Replicas:
    """What the workers of a collective learn: a replica each, or one for all where they join their gradients.

    Args:
        problem: that all share, with the initial weights and buffers.
        executor: computes what workers do in a step.
        local: what each worker computes for it.
        compressors: of what each worker sends where all join their gradients; none if that is sent as it is.
        gossip: of each replica, in its groups of each turn; none if weights are sent as they are.
        turns: the groups of each turn.
        optimizers: one a replica; with a single one all workers make one step on their mean gradient.
        rate: (samples, updates) so far -> learning rate of the next update.
        averages_first: a step begins with the averaging.
        evaluates_mean: of several replicas; else the first one is evaluated.
    """

    def __init__(
        self,
        *,
        problem: Problem,
        executor: Serial,
        local: Sequence[LocalSteps],
        compressors: Sequence[PushCompressor] = (),
        gossip: Sequence[Sequence[Gossip]] = (),
        turns: Sequence[Sequence[Averaging]],
        optimizers: Sequence[Optimizer],
        rate: Callable[[int, int], float],
        averages_first: bool,
        evaluates_mean: bool,
    ) -> None:
        self.problem, self.rate, self.evaluator = problem, rate, problem.evaluator()
        self.weights = [problem.flat.weights.clone() for _ in optimizers]  # [n] of each replica
        self.buffers = [problem.flat.buffers.clone() for _ in optimizers]  # [m]
        self.executor, self._local = executor, local
        self._optimizers = optimizers
        self._compressors, self._gossip, self._turns = compressors, gossip, turns
        self._push_sum = PushSum(len(optimizers))
        self._averages_first, self._evaluates_mean = averages_first, evaluates_mean

    def step(self, iteration: int, turn: int, rate: float) -> list[float]:
        """One step of all workers. Returns their losses; if one is no number, the weights may be worthless."""
        workers = range(len(self._local))
        if self._compressors or len(self._optimizers) < len(workers):
            return self._step_together(iteration, rate)
        if self._averages_first:
            self._average(iteration, turn)
        self._begin(iteration)
        losses = [self._step_alone(worker, rate) for worker in workers]
        if not self._averages_first:
            self._average(iteration, turn)
        return losses

    def current(self) -> tuple[list[Tensor], Tensor, dict[str, float]]:
        """What is to be evaluated, weights and buffers, and what else its row holds: the divergence of replicas."""
        pairs = zip(self._optimizers, self.weights, strict=True)
        evaluated = [optimizer.evaluated(weights) for optimizer, weights in pairs]
        if len(evaluated) == 1:
            return evaluated, self.buffers[0], {}
        replicas, push_sum = (self.weights, evaluated, self.buffers), self._push_sum.weights
        weights, buffers, divergence = evaluated_replica(*replicas, self._evaluates_mean, push_sum)
        return [weights], buffers, {"divergence": divergence}

    def final_states(self) -> list[dict[str, Tensor]]:
        """Of each replica."""
        replicas = zip(self._optimizers, self.weights, self.buffers, self._push_sum.weights, strict=True)
        return [
            final_state(weights, optimizer.evaluated(weights), buffers, push_sum_weight)
            for optimizer, weights, buffers, push_sum_weight in replicas
        ]

    def put(self, table: TensorTable) -> None:
        """Put all that changes into the table."""
        table.put_all("weights", {str(number): weights for number, weights in enumerate(self.weights)})
        table.put_all("buffers", {str(number): buffers for number, buffers in enumerate(self.buffers)})
        table.put_states(self._parts())

    def take(self, table: TensorTable) -> None:
        """Continue from what `put` put there."""
        for name, replicas in (("weights", self.weights), ("buffers", self.buffers)):
            for key, tensor in table.take_all(name).items():
                replicas[int(key)].copy_(tensor)
        table.take_states(self._parts())

    def _parts(self) -> Iterator[tuple[str, Stateful]]:
        """What optimizers and workers keep from step to step, and its name in a checkpoint."""
        yield "push-sum", self._push_sum
        for number, optimizer in enumerate(self._optimizers):
            yield f"optimizer-{number}", optimizer
        for worker, local in enumerate(self._local):
            yield f"local-{worker}", local
        for worker, compressor in enumerate(self._compressors):
            yield f"compress-{worker}", compressor
        for worker, turns in enumerate(self._gossip):
            for turn, gossip in enumerate(turns):
                yield f"consensus-{worker}-{turn}", gossip

    @property
    def device(self) -> torch.device:
        return self.weights[0].device

    def _step_together(self, iteration: int, rate: float) -> list[float]:
        (weights,), (buffers,) = self.weights, self.buffers
        losses, gradients, left = [], [], []
        self._begin(iteration)
        for worker in range(len(self._local)):
            loss, gradient, after = self.executor.take(worker)
            losses.append(loss)
            gradients.append(gradient.clone())
            if self._compressors:
                self._compressors[worker](gradients[-1], iteration)
            left.append(after.clone())
        buffers.copy_(mean_of(left))
        self._optimizers[0].step(weights, mean_of(gradients), rate, out=weights)
        return losses

    def _step_alone(self, worker: int, rate: float) -> float:
        weights, buffers = self.weights[worker], self.buffers[worker]
        loss, gradient, after = self.executor.take(worker)
        buffers.copy_(after)
        step_replica(self._optimizers[worker], weights, gradient, rate, self._push_sum.weights[worker])
        return loss

    def _begin(self, iteration: int) -> None:
        """All workers begin what they compute in a step."""
        for worker in range(len(self._local)):
            replica = worker if len(self.weights) > 1 else 0
            begun = Round(worker, iteration, [self.weights[replica]], self.buffers[replica], due=worker)
            self.executor.begin(begun)

    def _average(self, step: int, turn: int) -> None:
        averaged = self._turns[turn]
        push_sum = self._push_sum.advance(averaged)
        for replicas in (self.buffers,) if self._gossip else (self.weights, self.buffers):
            means = [
                mean_of([replicas[worker] for worker in members], weights)
                for (members, _), weights in zip(averaged, push_sum, strict=True)
            ]
            for (_, receivers), mean in zip(averaged, means, strict=True):
                for worker in receivers:
                    replicas[worker].copy_(mean)
        if self._gossip:
            for members, receivers in averaged:
                mean = mean_of([self._gossip[worker][turn].send(self.weights[worker], step)[1] for worker in members])
                for worker in receivers:
                    self._gossip[worker][turn].offset_from_mean.add_(mean)
                    self._gossip[worker][turn].step(self.weights[worker])
