"""What a worker pushes: the gradient of a mini-batch, or the result of several local steps.

Shape legend: n parameters, m float buffer elements.
"""

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field

import torch
from torch import Tensor

from syncline.learning.field_state import FieldState
from syncline.learning.gradient import GradientFunction, WorkerBatches
from syncline.learning.layout import UNREACHED
from syncline.learning.optimizer import Optimizer
from syncline.rounds import Rounds

REPLICA = "replica"  # in the state of a worker, beside what optimizers keep
OF_RULE = "rule-"  # there before what the rule keeps


class LocalRule(FieldState):
    """Local steps as they are; one of the user's own changes gradients or pushes.

    n: parameters of the model. `sent` [n] are the weights that the worker was sent last, `weights` [n] those that it
    has. Neither is to be changed.
    """

    def correct(self, gradient: Tensor, weights: Tensor, sent: Tensor) -> None:
        """Change the gradient [n] of a local step in place, which is of a mini-batch at the weights."""

    def push(self, change: Tensor, weights: Tensor, sent: Tensor) -> None:
        """Change what is pushed [n] in place, `sent - weights`; the weights are those after the last step."""


@dataclass(eq=False, slots=True)
class LocalSteps:
    """The rounds of one worker. From the weights w_0 that it has, a round of H mini-batches makes

        no optimizer:   w_h+1 = w_h - r_h (g_h + d w_h)         and pushes  g_0 + sum over h > 0 of (g_h + d w_h)
        an optimizer:   w_h+1 = its step at w_h with g_h        and pushes  w_0 - w_H

    with d the weight decay, which the server's step adds for w_0. So a server's step of plain SGD at a constant rate on
    the first is at w_H; and without an optimizer a round of one mini-batch pushes its gradient, in every bit. A tensor
    that no pass of the round has reached is pushed as such (layout.py), and neither step nor weight decay moves it.

    With `keep` the worker has a replica x of its own. It is sent w, its round begins at x_0, and it pushes how far it
    ends from what it was sent (the first round begins at w):

        x_0 = keep x_H of the round before + (1 - keep) w                               pushes  w - x_H

    With P fragments only one of w is sent, that of the push before, and only there the second line is so; elsewhere x_0
    is x_H, and w what was sent of it last. What is pushed of w - x_H is the fragment whose turn it is. With `overlap` a
    round begins before the answer to the push before it has come, and with that to the one before: the fragments of
    the two differ, as P > 1.

    Sources: Stich 2019, algorithm 1 (local SGD); Reddi et al. 2021, algorithm 1 (the change as a gradient); Zhang,
    Choromanska and LeCun 2015, algorithm 1 (elastic averaging); Douillard et al. 2025, algorithm 2 (fragments, mixing).
    """

    gradient: GradientFunction
    rounds: Rounds
    rate: Callable[[int], float]  # mini-batches that the worker has had -> rate of its next local step
    weight_decay: float = 0.0  # of the steps without an optimizer
    optimizer: Optimizer | None = None  # of the local steps; its state stays at the worker
    skips_unreached: bool = False  # passes may leave tensors unreached
    keep: float = 0.0  # in [0, 1), with an optimizer: the share of its own weights that a worker keeps
    fragments: Sequence[Sequence[slice]] = ()  # of each its places in the vector; none: there is but one
    overlap: bool = False
    rule: LocalRule | None = None  # of the user's own, with an optimizer
    _replica: Tensor | None = field(default=None, init=False)  # x_H of the last round [n], with `keep` or fragments

    def __call__(
        self, weights: list[Tensor], buffers: Tensor, batches: WorkerBatches, number: int
    ) -> tuple[float, Tensor, Tensor]:
        """A whole round: mean loss, what is pushed [n], and buffers [m] after it.

        These belong to the module, as those of `GradientFunction`.
        """
        with closing(self.steps(weights, buffers, batches, number)) as steps:
            losses = list(steps)
        return sum(losses) / len(losses), self.gradient.flat.gradient, self.gradient.flat.buffers

    def steps(self, weights: list[Tensor], buffers: Tensor, batches: WorkerBatches, number: int) -> Generator[float]:
        """The losses of a round, one a local step. After the last one, the module's gradient is what is pushed.

        The module's weights are those that were given then. If the iterator is closed before, they are any, and the
        optimizer has made some of its steps.
        """
        flat, places = self.gradient.flat, self.rounds.batches(number)
        if len(places) == 1 and self.optimizer is None:
            yield self.gradient(weights, buffers, batches.take(number))[0]
            return
        flat.load(weights, buffers)
        sent, total = flat.weights.clone(), torch.full_like(flat.gradient, UNREACHED)
        if self._replica is not None:
            self._mix(self._replica, number)
        for place in places:
            loss, gradient, _ = self.gradient([flat.weights], flat.buffers, batches.take(place))
            if self.rule is not None:
                self._correct(self.rule, gradient, sent)
            self._step(gradient, total, place, is_first=place == places[0], is_last=place == places[-1])
            yield loss
        if self.optimizer is None:
            flat.gradient.copy_(total)
        else:
            flat.gradient.copy_(sent).sub_(flat.weights)
            if self.rule is not None:
                self.rule.push(flat.gradient, flat.weights, sent)
            if self.keep or self.fragments:
                self._replica = flat.weights.clone()
            else:
                self._mark_unreached(flat.gradient, total)
        flat.weights.copy_(sent)

    def _mix(self, replica: Tensor, number: int) -> None:
        """Begin this round at the replica, drawn to what was sent."""
        weights = self.gradient.flat.weights
        if not self.fragments:
            weights.lerp_(replica, self.keep)
            return
        mixed, answered = replica.clone(), number - 2 if self.overlap else number - 1
        for place in self.fragments[answered % len(self.fragments)] if answered >= 0 else ():
            torch.lerp(weights[place], replica[place], self.keep, out=mixed[place])
        weights.copy_(mixed)

    def _correct(self, rule: LocalRule, gradient: Tensor, sent: Tensor) -> None:
        pure = gradient.clone() if self.skips_unreached else gradient
        rule.correct(gradient, self.gradient.flat.weights, sent)
        self._mark_unreached(gradient, pure)

    def _step(self, gradient: Tensor, total: Tensor, place: int, is_first: bool, is_last: bool) -> None:
        weights = self.gradient.flat.weights
        if self.optimizer is not None:
            if self.skips_unreached:
                total.add_(gradient)
            self.optimizer.step(weights, gradient, self.rate(place), out=weights)
            return
        if not is_first:
            self._decay(gradient, weights)
        total.add_(gradient)
        if is_last:
            return
        if is_first:
            self._decay(gradient, weights)
        weights.add_(gradient, alpha=-self.rate(place))

    def _decay(self, gradient: Tensor, weights: Tensor) -> None:
        if self.weight_decay:
            pure = gradient.clone() if self.skips_unreached else gradient
            gradient.add_(weights, alpha=self.weight_decay)
            self._mark_unreached(gradient, pure)

    def _mark_unreached(self, vector: Tensor, gradient: Tensor) -> None:
        """What no pass has reached by this gradient is so in the vector, too."""
        if self.skips_unreached:
            for place in self.gradient.flat.layout.unreached(gradient):
                place.of(vector).fill_(UNREACHED)

    def state_dict(self) -> dict[str, Tensor]:
        """Of optimizer and rule, and the replica; their own tensors, which the next step changes."""
        state = {} if self.optimizer is None else self.optimizer.state_dict()
        if self._replica is not None:
            state = state | {REPLICA: self._replica}
        if self.rule is not None:
            state = state | {OF_RULE + name: tensor for name, tensor in self.rule.state_dict().items()}
        return state

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Restore a copy of a state from `state_dict`; of an empty one, that of a worker that has done nothing."""
        self._replica = state[REPLICA].clone() if REPLICA in state else None
        of_rule = {name.removeprefix(OF_RULE): t for name, t in state.items() if name.startswith(OF_RULE)}
        if self.rule is not None:
            self.rule.load_state_dict(of_rule)
        if self.optimizer is not None:
            others = {name: t for name, t in state.items() if name != REPLICA and not name.startswith(OF_RULE)}
            self.optimizer.load_state_dict(others)
