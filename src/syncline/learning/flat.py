"""A module on flat vectors: parameters, gradients and float buffers, each one contiguous tensor.

Shape legend: n parameters, m float buffer elements (batch-norm statistics), e extra elements.
"""

import torch
from torch import Tensor, nn

ALIGNED = 16  # elements: the weights begin at a multiple of it


class FlatModule:
    """An `nn.Module` whose trained parameters, gradients and buffers are views into flat vectors.

    They share one storage in the order gradient, buffers, extra, weights, so that gradient or weights can be sent with
    the buffers and the extra elements as one message.

    Integer buffers (batch norm's count of batches) stay in the module: no model here reads one that it changes. So do
    parameters that are not trained (requires_grad=False).

    Args:
        module: its parameters and buffers are replaced by views; it is set to training mode.
        num_extra: e, elements for additional data of a message.

    Raises:
        ValueError: no parameter is trained, or one, or a buffer of real numbers, is not of torch's default dtype.
    """

    def __init__(self, module: nn.Module, num_extra: int = 0) -> None:
        self.module = module.train()  # all processes alike, however it was built
        self.is_random = _draws_numbers(module)  # in training mode, from torch's global generator
        parameters = [parameter for parameter in module.parameters() if parameter.requires_grad]
        buffers = [buffer for buffer in module.buffers() if buffer.is_floating_point()]
        self.trained = parameters
        if not parameters:
            raise ValueError(f"{type(module).__name__} has no parameters to train")
        wanted = torch.get_default_dtype()
        if kinds := {tensor.dtype for tensor in (*parameters, *buffers)} - {wanted}:
            raise ValueError(f"{type(module).__name__} must have parameters and buffers of {wanted}, got {kinds.pop()}")
        initial = _flatten([parameter.detach() for parameter in parameters])
        size, num_buffers = initial.numel(), sum(buffer.numel() for buffer in buffers)
        end = size + num_buffers + num_extra
        begin = -(-end // ALIGNED) * ALIGNED
        storage = initial.new_zeros(begin + size)
        parts = torch.split(storage[:end], [size, num_buffers, num_extra])
        self.gradient, self.buffers, self.extra = parts  # [n], [m], [e]
        self.weights = storage[begin:]  # [n]
        self.with_gradient = storage[:end]  # gradient, buffers and extra [n + m + e]
        self.with_weights = storage[size:]  # buffers, extra and weights [m + e + n, and padding]
        self.beside = storage[size:end]  # buffers and extra [m + e]
        self.weights.copy_(initial)
        if buffers:
            self.buffers.copy_(_flatten(buffers))
        self.weight_tensors = _views(self.weights, parameters)  # one a parameter
        self.gradient_tensors = _views(self.gradient, parameters)  # one a parameter
        for parameter, weight, gradient in zip(parameters, self.weight_tensors, self.gradient_tensors, strict=True):
            parameter.data = weight
            # Autograd adds to an existing gradient; zero_grad() with its default would drop this view.
            parameter.grad = gradient
        for buffer, view in zip(buffers, _views(self.buffers, buffers), strict=True):
            buffer.data = view

    def load(self, weights: list[Tensor], buffers: Tensor) -> None:
        """Copy weights (contiguous blocks, [n] in total) and buffers [m] into the module."""
        if len(weights) == 1:
            self.weights.copy_(weights[0])
        else:
            torch.cat(weights, out=self.weights)
        self.buffers.copy_(buffers)


def _draws_numbers(module: nn.Module) -> bool:
    """Whether it has dropout, or declares that it `samples`."""
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
