"""A module on flat vectors: parameters, gradients and float buffers, each one contiguous tensor.

Shape legend: n parameters, m float buffer elements (batch-norm statistics).
"""

import torch
from torch import Tensor, nn


class FlatModule:
    """An `nn.Module` whose parameters, gradients and buffers are views into flat vectors.

    Integer buffers (batch-norm's count of batches) stay with the module: nothing that we train reads them.

    Args:
        module: is changed.
        num_extra: elements behind gradient and buffers in `exchange`, for whoever sends all of it at once.
    """

    def __init__(self, module: nn.Module, num_extra: int = 0) -> None:
        self.module = module
        parameters = list(module.parameters())
        buffers = [buffer for buffer in module.buffers() if buffer.is_floating_point()]
        num_buffers = sum(buffer.numel() for buffer in buffers)
        self.weights = _flatten([parameter.detach() for parameter in parameters])  # [n]
        self.exchange = self.weights.new_zeros(self.weights.numel() + num_buffers + num_extra)
        self.gradient, self.buffers, self.extra = torch.split(
            self.exchange, [self.weights.numel(), num_buffers, num_extra]
        )  # [n], [m], [num_extra]
        if buffers:
            self.buffers.copy_(_flatten(buffers))
        for parameter, weight, gradient in zip(
            parameters, _views(self.weights, parameters), _views(self.gradient, parameters), strict=True
        ):
            parameter.data = weight
            # Autograd adds into a gradient that is there; zero_grad() with its default would drop this view.
            parameter.grad = gradient
        for buffer, view in zip(buffers, _views(self.buffers, buffers), strict=True):
            buffer.data = view

    def load(self, weights: list[Tensor], buffers: Tensor) -> None:
        """Copy weights (contiguous blocks, [n] in all) and buffers [m] in."""
        if len(weights) == 1:
            self.weights.copy_(weights[0])
        else:
            torch.cat(weights, out=self.weights)
        self.buffers.copy_(buffers)


def _flatten(tensors: list[Tensor]) -> Tensor:
    return torch.cat([tensor.reshape(-1) for tensor in tensors])


def _views(flat: Tensor, like: list[Tensor] | list[nn.Parameter]) -> list[Tensor]:
    parts = torch.split(flat, [tensor.numel() for tensor in like]) if like else ()
    return [part.view(tensor.shape) for part, tensor in zip(parts, like, strict=True)]
