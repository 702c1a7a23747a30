"""CUDA graphs: the kernels of a small network's gradient are launched at once, which takes longer one by one."""

from collections import Counter
from collections.abc import Callable, Hashable

import torch
from torch import Tensor

from syncline.datasets.batch_source import Batch

WARM_UP = 3  # calls before the recording: torch's libraries allocate at the first ones


class CudaGraphs:
    """Calls a function of batches on the GPU; from the fourth one of the same shapes on by a recording of its kernels.

    The function must launch the same kernels for all batches of the same shapes: it reads no values on the host and
    draws no random numbers. What it reads and writes besides its argument and its result must stay where it is.

    Source: PyTorch's notes on CUDA semantics, "CUDA Graphs", whole-network capture.
    """

    def __init__(self, function: Callable[[Batch], Tensor]) -> None:
        self._function = function
        self._calls: Counter[Hashable] = Counter()  # by shapes
        self._recorded: dict[Hashable, tuple[Batch, torch.cuda.CUDAGraph, Tensor]] = {}
        # A recording is made on another stream than the default one, after calls on it.
        self._stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        self._pool = torch.cuda.graph_pool_handle()  # of all recordings; only one result at a time is used

    def __call__(self, batch: Batch) -> Tensor:
        """The function's result; the next call overwrites it."""
        shapes = tuple((tensor.shape, tensor.dtype) for tensor in batch)
        if shapes not in self._recorded:
            if self._calls[shapes] < WARM_UP:
                self._calls[shapes] += 1
                return self._called(batch)
            self._recorded[shapes] = self._record(batch)
        inputs, graph, result = self._recorded[shapes]
        for into, tensor in zip(inputs, batch, strict=True):
            into.copy_(tensor)
        graph.replay()
        return result

    def _called(self, batch: Batch) -> Tensor:
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            result = self._function(batch)
        torch.cuda.current_stream().wait_stream(self._stream)
        return result

    def _record(self, batch: Batch) -> tuple[Batch, torch.cuda.CUDAGraph, Tensor]:
        inputs = tuple(tensor.clone() for tensor in batch)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool, stream=self._stream):
            result = self._function(inputs)
        return inputs, graph, result
