"""What every member of a collective holds: the model and its optimizer, and the vector that is exchanged."""

from collections.abc import Sequence

import torch
from torch import Tensor

from syncline.learning.gradient import GradientFunction, MiniBatch
from syncline.learning.optimizer import Optimizer
from syncline.live import stop_consensus
from syncline.live.process_group import Group, all_reduce

NUM_EXTRA = 1 + stop_consensus.NUM_ELEMENTS  # elements that are exchanged too: loss and stop consensus


class Replica:
    """One member's weights.

    Batch-norm buffers and extra elements are exchanged with the gradient or the weights as one flat vector, so a step
    costs one all-reduce.

    Args:
        gradient: the gradient function, on a vector with `NUM_EXTRA` extra elements.
        optimizer: of all weights.
        averages_weights: the weights are exchanged; else the gradient.
        per_tensor: one all-reduce for each tensor of them, and one for the rest.
    """

    def __init__(
        self, gradient: GradientFunction, optimizer: Optimizer, averages_weights: bool = False, per_tensor: bool = False
    ) -> None:
        self.flat = flat = gradient.flat
        self.optimizer = optimizer
        self._gradient = gradient
        if per_tensor:
            self._exchanged = [*(flat.weight_tensors if averages_weights else flat.gradient_tensors), flat.beside]
        else:
            self._exchanged = [flat.with_weights if averages_weights else flat.with_gradient]

    def warm_up(self, batch: MiniBatch) -> None:
        """One gradient before the run, for what libraries set up at the first one; it changes nothing."""
        buffers = self.flat.buffers.clone()
        self.compute(batch)
        self.flat.buffers.copy_(buffers)

    def compute(self, batch: MiniBatch) -> float:
        """Write the gradient of this mini-batch, and the buffers after it, into the vector. Returns the loss."""
        loss, _, _ = self._gradient([self.flat.weights], self.flat.buffers, batch)
        return loss

    def average(self, group: Group, extra: Sequence[float]) -> list[float]:
        """Replace what is exchanged by its mean over the group. Returns the sums of the extra elements [NUM_EXTRA].

        Raises:
            MemberLost: another member is lost.
        """
        elements = self.flat.extra
        elements.copy_(torch.tensor(extra, dtype=elements.dtype))
        for tensor in self._exchanged:
            all_reduce(tensor, group)
        sums: list[float] = elements.tolist()
        for tensor in self._exchanged:
            tensor.div_(group.size)
        return sums

    def step(self, rate: float) -> None:
        """One optimizer step on the gradient."""
        self.optimizer.step(self.flat.weights, self.flat.gradient, rate, out=self.flat.weights)

    def snapshot_tensors(self) -> dict[str, Tensor]:
        """Copies on the CPU of what is evaluated."""
        flat = self.flat
        tensors = {"weights": flat.weights.cpu().clone(), "buffers": flat.buffers.cpu().clone()}
        evaluated = self.optimizer.evaluated(flat.weights)
        if evaluated is not flat.weights:
            tensors["evaluated"] = evaluated.cpu().clone()
        return tensors
