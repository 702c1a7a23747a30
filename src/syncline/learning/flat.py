"""A module on flat vectors: parameters, gradients and float buffers, each one contiguous tensor.

Shape legend: n parameters, m float buffer elements (batch-norm statistics), e extra elements.
"""

import torch
from torch import Tensor, nn

ALIGNED = 16  # elements: the weights begin at a multiple of it


class FlatModule:
    """An `nn.Module` whose parameters, gradients and buffers are views into flat vectors.

    All lie in one storage, in the order gradient, buffers, extra, weights: gradient or weights are sent together with
    the buffers and the extra elements in one piece.

    Integer buffers (batch-norm's count of batches) stay with the module: nothing that we train reads them.

    Args:
        module: is changed.
        num_extra: elements for whoever sends all of it at once.
    """

    def __init__(self, module: nn.Module, num_extra: int = 0) -> None:
        self.module = module
        self.is_random = _draws_numbers(module)  # while it learns, from torch's global generator
        parameters = list(module.parameters())
        buffers = [buffer for buffer in module.buffers() if buffer.is_floating_point()]
        initial = _flatten([parameter.detach() for parameter in parameters])
        size, num_buffers = initial.numel(), sum(buffer.numel() for buffer in buffers)
        end = size + num_buffers + num_extra
        begin = -(-end // ALIGNED) * ALIGNED
        storage = initial.new_zeros(begin + size)
        self.gradient, self.buffers, self.extra = torch.split(
            storage[:end], [size, num_buffers, num_extra]
        )  # [n], [m], [e]
        self.weights = storage[begin:]  # [n]
        self.with_gradient = storage[:end]  # gradient, buffers and extra [n + m + e]
        self.with_weights = storage[size:]  # buffers, extra and weights [m + e + n and a few zeros between]
        self.beside = storage[size:end]  # buffers and extra [m + e]
        self.weights.copy_(initial)
        if buffers:
            self.buffers.copy_(_flatten(buffers))
        self.weight_tensors = _views(self.weights, parameters)  # one a parameter
        self.gradient_tensors = _views(self.gradient, parameters)  # one a parameter
        for parameter, weight, gradient in zip(parameters, self.weight_tensors, self.gradient_tensors, strict=True):
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


def _draws_numbers(module: nn.Module) -> bool:
    """Units are dropped out, or the module says that it `samples`."""
    return any(
        getattr(part, "samples", False)
        or (isinstance(part, nn.Dropout | nn.Dropout2d) and part.p > 0)
        or (isinstance(part, nn.RNNBase) and part.dropout > 0)
        for part in module.modules()
    )


def _flatten(tensors: list[Tensor]) -> Tensor:
    return torch.cat([tensor.reshape(-1) for tensor in tensors])


def _views(flat: Tensor, like: list[Tensor] | list[nn.Parameter]) -> list[Tensor]:
    parts = torch.split(flat, [tensor.numel() for tensor in like]) if like else ()
    return [part.view(tensor.shape) for part, tensor in zip(parts, like, strict=True)]
