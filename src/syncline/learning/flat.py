"""A module on flat vectors: parameters, gradients and float buffers, each one contiguous tensor.

Shape legend: n parameters, m float buffer elements (batch-norm statistics), e extra elements.
"""

from typing import Any

import torch
from torch import Tensor, nn

from syncline.learning.layout import UNREACHED, Layout
from syncline.learning.storage import move

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
        loss: has the parameters and buffers of the task, which are behind those of the module; None: it has none.
        is_random: it draws from the global generators; else this is told from its layers.

    Raises:
        ValueError: no parameter is trained, one, or a buffer of real numbers, is not of torch's default dtype, or
            shares memory with something that could not follow it.
    """

    def __init__(
        self, module: nn.Module, num_extra: int = 0, loss: nn.Module | None = None, is_random: bool = False
    ) -> None:
        self.module = module
        self._holders = {"": module} if loss is None else {"": module, "task.": loss}
        self.train()  # all processes alike, however it was built
        self.is_random = is_random or _draws_numbers(module)  # in training mode, from the global generators
        parameters = self.named("named_parameters")
        trained = {name: each for name, each in parameters.items() if each.requires_grad}
        buffers = {name: each for name, each in self.named("named_buffers").items() if each.is_floating_point()}
        if not trained:
            raise ValueError(f"{type(module).__name__} has no parameters to train")
        if lazy := [name for name, each in parameters.items() if nn.parameter.is_lazy(each)]:
            raise ValueError(f"{lazy[0]} has no shape before the first forward pass: give the layer its input size")
        moved, wanted = trained | buffers, torch.get_default_dtype()
        if wrong := [f"{each.dtype} of {name}" for name, each in moved.items() if each.dtype != wanted]:
            raise ValueError(f"{type(module).__name__} must have parameters and buffers of {wanted}, got {wrong[0]}")
        self.trained: list[nn.Parameter] = list(trained.values())
        self.layout, self._buffer_layout = Layout.of(trained), Layout.of(buffers)
        size, num_buffers = self.layout.size, self._buffer_layout.size
        end = size + num_buffers + num_extra
        begin = -(-end // ALIGNED) * ALIGNED
        storage = self.trained[0].new_zeros(begin + size, requires_grad=False)
        parts = torch.split(storage[:end], [size, num_buffers, num_extra])
        self.gradient, self.buffers, self.extra = parts  # [n], [m], [e]
        self.weights = storage[begin:]  # [n]
        self.with_gradient = storage[:end]  # gradient, buffers and extra [n + m + e]
        self.with_weights = storage[size:]  # buffers, extra and weights [m + e + n, and padding]
        self.beside = storage[size:end]  # buffers and extra [m + e]
        views = [*self.layout.views(self.weights), *self._buffer_layout.views(self.buffers)]
        for tensor, view in zip(moved.values(), views, strict=True):
            view.copy_(tensor.detach())
        move(list(self._holders.values()), moved, views)
        for parameter, gradient in zip(self.trained, self.layout.views(self.gradient), strict=True):
            # Autograd adds to an existing gradient; zero_grad() with its default would drop this view.
            parameter.grad = gradient

    def clear_gradient(self) -> None:
        """No pass has reached any parameter: autograd adds to this, which is as if it wrote."""
        self.gradient.fill_(UNREACHED)

    def train(self, is_training: bool = True) -> None:
        """Set the mode of module and loss."""
        for holder in self._holders.values():
            holder.train(is_training)

    def check(self) -> None:
        """Raises ValueError: the module has other trained parameters than at first, or memory of it was replaced.

        So what it made or replaced since would be neither sent nor kept.
        """
        expected = dict(zip([place.name for place in self.layout.places], self.trained, strict=True))
        found = {name: each for name, each in self.named("named_parameters").items() if each.requires_grad}
        if new := sorted(set(found) - set(expected)):
            raise ValueError(
                f"{new[0]} is made, or its requires_grad set, after the model was built: it would not be trained; "
                "make it in __init__"
            )
        if gone := [name for name, each in expected.items() if found.get(name) is not each]:
            raise ValueError(f"{gone[0]} is not trained any more, or replaced by another parameter, in a pass")
        buffers = self.named("named_buffers")
        for place, view in zip(self._buffer_layout.places, self._buffer_layout.views(self.buffers), strict=True):
            if place.name not in buffers or buffers[place.name].data_ptr() != view.data_ptr():
                raise ValueError(f"{place.name}: a pass replaces this buffer; it must be changed in place, as by copy_")
        views = zip(self.layout.views(self.weights), self.layout.views(self.gradient), strict=True)
        for (name, parameter), (weights, gradient) in zip(expected.items(), views, strict=True):
            if parameter.data_ptr() != weights.data_ptr():
                raise ValueError(f"{name}: a pass replaces its data, which must be changed by optimizers alone")
            if parameter.grad is None or parameter.grad.data_ptr() != gradient.data_ptr():
                raise ValueError(
                    f"{name}: its gradient must be dense, and must not be replaced (sparse=False, no zero_grad)"
                )

    def named(self, kind: str) -> dict[str, Any]:
        """The parameters, buffers or modules (`named_...`) of module and loss by name, each once."""
        found: dict[int, tuple[str, Any]] = {}
        for prefix, holder in self._holders.items():
            for name, each in getattr(holder, kind)():
                found.setdefault(id(each), (prefix + name, each))
        return dict(found.values())

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
