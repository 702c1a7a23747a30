"""Tensors as payload of frames."""

from torch import Tensor

DIRECT_BYTES = 1 << 16  # a payload up to this size is sent by the calling thread: handing it over would take longer


def byte_view(tensor: Tensor) -> memoryview:
    """The bytes of a contiguous tensor on the CPU."""
    if not tensor.numel():
        return memoryview(b"")
    return memoryview(tensor.numpy()).cast("B")  # type: ignore[arg-type]  # numpy 2.4's stubs lack __buffer__ here
