"""Tensors as payload of frames."""

import torch
from torch import Tensor

from syncline.learning.flat import FlatModule

DIRECT_BYTES = 1 << 16  # a payload up to this size is sent by the calling thread: handing it over would take longer


def byte_view(tensor: Tensor) -> memoryview:
    """The bytes of a contiguous tensor on the CPU."""
    if not tensor.numel():
        return memoryview(b"")
    return memoryview(tensor.numpy()).cast("B")  # type: ignore[arg-type]  # numpy 2.4's stubs lack __buffer__ here


class Staging:
    """The flat vectors in host memory: the module's own on a CPU, pinned copies of them on a GPU."""

    def __init__(self, flat: FlatModule) -> None:
        self._flat = flat
        self._on_gpu = flat.weights.is_cuda
        self.weights, self.gradient, self.buffers = (
            torch.empty_like(tensor, device="cpu", pin_memory=True) if self._on_gpu else tensor
            for tensor in (flat.weights, flat.gradient, flat.buffers)
        )

    def to_device(self) -> None:
        if self._on_gpu:
            self._flat.weights.copy_(self.weights, non_blocking=True)
            self._flat.buffers.copy_(self.buffers, non_blocking=True)

    def from_device(self) -> None:
        if self._on_gpu:
            self.gradient.copy_(self._flat.gradient, non_blocking=True)
            self.buffers.copy_(self._flat.buffers, non_blocking=True)
            torch.cuda.synchronize(self._flat.weights.device)
