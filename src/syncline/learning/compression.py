"""Compression of what workers and shards send: what of a vector, in how many bytes, and how it is read again.

A shard receives the compressed form of its own block and adds it up like any push. With error feedback a worker keeps
what its push left out and adds it to the next one, so that nothing is lost but what a strategy discards. A pull is the
compressed difference of the shard's block from what the worker has, which the shard knows.

Shape legend: n elements of a block, k of them that are sent.

Sources: Stich et al. 2018, algorithm 1 (sparsified SGD with memory); Karimireddy et al. 2019, algorithm 2 (error
feedback for any compression); Tang et al. 2019, DoubleSqueeze (both directions).
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from syncline.datasets.streams import Purpose, stream
from syncline.learning.field_state import FieldState
from syncline.learning.layout import UNREACHED, blocks

CHUNK = 1024  # elements that share a scale
SAMPLE = 8192  # elements of a block, from which the size of its largest is estimated


class Compression(Protocol):
    """The compressed form of a block: bytes whose number depends on n alone."""

    def size(self, n: int) -> int:
        """Bytes of a block of n elements."""
        ...

    def encode(self, block: Tensor, seed: int) -> Tensor:
        """The bytes of a block float32 [n] on the CPU, uint8 [size]; `seed` in 0 .. 2^63 - 1, for random choices."""
        ...

    def decode(self, data: Tensor, out: Tensor) -> None:
        """Write the block that these bytes stand for to `out` [n].

        Raises:
            ValueError: no block has these bytes.
        """
        ...


class Sparse(ABC):
    """Some elements of a block are sent; the others count as zero."""

    __slots__ = ()

    @abstractmethod
    def entries(self, data: Tensor, n: int) -> tuple[Tensor, Tensor]:
        """The places int64, each once, and the values of the elements that were sent, of a block of n elements.

        Raises:
            ValueError: no block has these bytes.
        """

    def decode(self, data: Tensor, out: Tensor) -> None:
        places, values = self.entries(data, out.numel())
        out.zero_()
        out[places] = values


@dataclass(frozen=True, slots=True)
class TopK(Sparse):
    """The k elements of the largest absolute values: their places int32 in ascending order, then their values."""

    density: float  # k / n, in (0, 1]

    def size(self, n: int) -> int:
        return 8 * _share(self.density, n)

    def encode(self, block: Tensor, seed: int) -> Tensor:
        places = _largest(block.abs().numpy(), _share(self.density, block.numel()))
        return torch.cat([places.to(torch.int32).view(torch.uint8), block[places].view(torch.uint8)])

    def entries(self, data: Tensor, n: int) -> tuple[Tensor, Tensor]:
        half = data.numel() // 2
        places = _read(data[:half], torch.int32).long()
        if not _ascend(places, n):
            raise ValueError("places that do not ascend within the block")
        return places, _read(data[half:], torch.float32)


@dataclass(frozen=True, slots=True)
class RandK(Sparse):
    """k random elements: the seed int64 from which their places follow, then their values.

    Without error feedback they are divided by the density: the mean over seeds is the block.
    """

    density: float  # k / n, in (0, 1]
    unbiased: bool = False

    def size(self, n: int) -> int:
        return 8 + 4 * _share(self.density, n)

    def encode(self, block: Tensor, seed: int) -> Tensor:
        values = block[self._places(seed, block.numel())]
        if self.unbiased:
            values = values * (block.numel() / max(1, values.numel()))
        return torch.cat([torch.tensor([seed]).view(torch.uint8), values.view(torch.uint8)])

    def entries(self, data: Tensor, n: int) -> tuple[Tensor, Tensor]:
        seed = int(data[:8].view(torch.int64).item())
        if seed < 0:
            raise ValueError(f"a seed below 0: {seed}")
        return self._places(seed, n), _read(data[8:], torch.float32)

    def _places(self, seed: int, n: int) -> Tensor:
        generator = np.random.Generator(np.random.Philox(seed))
        return torch.from_numpy(generator.choice(n, _share(self.density, n), replace=False, shuffle=False))


@dataclass(frozen=True, slots=True)
class Int8:
    """Whole numbers -127 .. 127, rounded to the nearest, of a scale float32 for each `CHUNK`; first all scales."""

    def size(self, n: int) -> int:
        return 4 * math.ceil(n / CHUNK) + n

    def encode(self, block: Tensor, seed: int) -> Tensor:
        chunks = _chunks(block)
        scales = chunks.abs().amax(dim=1) / 127
        steps = torch.where(scales > 0, scales, torch.ones_like(scales))
        whole = (chunks / steps[:, None]).round_().clamp_(-127, 127).to(torch.int8).reshape(-1)[: block.numel()]
        return torch.cat([scales.view(torch.uint8), whole.view(torch.uint8)])

    def decode(self, data: Tensor, out: Tensor) -> None:
        num_scales = math.ceil(out.numel() / CHUNK)
        scales = _read(data[: 4 * num_scales], torch.float32)
        out.copy_(_read(data[4 * num_scales :], torch.int8))
        num_whole = out.numel() // CHUNK
        out[: num_whole * CHUNK].view(num_whole, CHUNK).mul_(scales[:num_whole, None])
        out[num_whole * CHUNK :].mul_(scales[num_whole:])


@dataclass(frozen=True, slots=True)
class Sign:
    """The mean of the absolute values float32, then a bit an element: 1 where it is >= 0."""

    def size(self, n: int) -> int:
        return 4 + math.ceil(n / 8) if n else 0

    def encode(self, block: Tensor, seed: int) -> Tensor:
        if not block.numel():
            return block.view(torch.uint8)
        bits = torch.from_numpy(np.packbits((block >= 0).numpy()))
        return torch.cat([block.abs().mean().reshape(1).view(torch.uint8), bits])

    def decode(self, data: Tensor, out: Tensor) -> None:
        if not out.numel():
            return
        bits = np.unpackbits(data[4:].numpy(), count=out.numel())
        out.copy_(torch.from_numpy(bits)).mul_(2).sub_(1).mul_(data[:4].view(torch.float32))


@dataclass(frozen=True, slots=True)
class Fragment:
    """One of P equal parts, in turn: its number int64, then its values. Of the others nothing is sent (`UNREACHED`).

    What is sent in place of a seed is the number of the push, of which the fragment is the remainder by P.

    Source: Douillard et al. 2025, Streaming DiLoCo with overlapping communication, section 2.2.
    """

    num: int  # P

    def size(self, n: int) -> int:
        return 8 + 4 * math.ceil(n / self.num)

    def encode(self, block: Tensor, seed: int) -> Tensor:
        part = block[blocks(block.numel(), self.num)[seed % self.num]]
        padding = math.ceil(block.numel() / self.num) - part.numel()
        values = torch.nn.functional.pad(part, (0, padding))
        return torch.cat([torch.tensor([seed % self.num]).view(torch.uint8), values.view(torch.uint8)])

    def decode(self, data: Tensor, out: Tensor) -> None:
        number = int(data[:8].view(torch.int64).item())
        if not 0 <= number < self.num:
            raise ValueError(f"a fragment of number {number}")
        place = blocks(out.numel(), self.num)[number]
        out.fill_(UNREACHED)
        out[place] = _read(data[8:], torch.float32)[: place.stop - place.start]


def compressed(compression: Compression, block: Tensor, seed: int) -> Tensor:
    """The bytes of a block [n] on the CPU; the block becomes what they stand for."""
    sent = compression.encode(block, seed)
    compression.decode(sent, block)
    return sent


class Mean:
    """The mean of compressed vectors; its memory is used again and again.

    Args:
        compression: of all of them.
        n: elements of a vector.
    """

    def __init__(self, compression: Compression, n: int) -> None:
        self._compression = compression
        self._sum = torch.zeros(n)  # of sparse vectors: zero between two means
        self._one = torch.empty(0 if isinstance(compression, Sparse) else n)

    def add_to(self, out: Tensor, parts: Sequence[Tensor]) -> None:
        """Add to `out` [n] the mean of what these bytes stand for, which are summed in their order.

        Of sparse vectors only what was sent is touched: a pass over a long vector costs more.

        Raises:
            ValueError: no vector has these bytes; `out` is as before.
        """
        if isinstance(self._compression, Sparse):
            entries = [self._compression.entries(part, self._sum.numel()) for part in parts]
            for places, values in entries:
                self._sum[places] += values
            for places, _ in entries:  # one that several sent comes again, as zero
                out[places.to(out.device)] += (self._sum[places] / len(parts)).to(out.device)
                self._sum[places] = 0.0
            return
        for number, part in enumerate(parts):
            self._compression.decode(part, self._one if number else self._sum)
            if number:
                self._sum.add_(self._one)
        out.add_(self._sum.div_(len(parts)).to(out.device))


@dataclass(eq=False, slots=True)
class PushCompressor(FieldState):
    """What one worker does to its pushes.

    Args:
        compression: of each block.
        blocks: the shards' parts of the flat vector.
        feedback: what a push leaves out is added to the next one.
        worker, seed: the key of its random choices, with the push's number; `seed` is the run's.
    """

    compression: Compression
    blocks: Sequence[slice]
    feedback: bool
    worker: int
    seed: int
    residual: Tensor | None = field(default=None, init=False)  # what earlier pushes left out [sum of n]; None: nothing

    def __call__(self, flat: Tensor, number: int) -> list[Tensor]:
        """The compressed blocks of a push; `flat` [sum of n] becomes what they stand for."""
        if self.feedback and self.residual is not None:
            flat.add_(self.residual)
        wanted = flat.clone() if self.feedback else None
        on_cpu = flat.cpu()
        seeds = _seeds(self.compression, number, len(self.blocks), Purpose.COMPRESS, self.worker, number, self.seed)
        sent = []
        for block, seed in zip(self.blocks, seeds, strict=True):
            sent.append(compressed(self.compression, on_cpu[block], seed))
        if on_cpu is not flat:
            flat.copy_(on_cpu)
        self.residual = None if wanted is None else wanted.sub_(flat)
        return sent


@dataclass(eq=False, slots=True)
class PullCompressor(FieldState):
    """What one shard does to the blocks that one worker pulls.

    What one difference leaves out is in the next one, since that is taken from what the worker has.

    Args:
        compression: of differences.
        worker, shard, seed: the key of its random choices, with the number of the difference; `seed` is the run's.
    """

    compression: Compression
    worker: int
    shard: int
    seed: int
    known: Tensor | None = field(default=None, init=False)  # the block that the worker has [n]; None: it has none
    _number: int = field(default=0, init=False)

    def __call__(self, block: Tensor, push: int) -> Tensor | None:
        """The bytes, uint8, that bring the worker nearer to this block [n]; None: it is sent the block as it is.

        Args:
            push: number of the last one of the worker.
        """
        if self.known is None:
            self.known, self._number = block.clone(), 0
            return None
        channel = self.worker << 16 | self.shard
        (seed,) = _seeds(self.compression, push, 1, Purpose.COMPRESS_PULLS, channel, self._number, self.seed)
        self._number += 1
        difference = (block - self.known).cpu()
        sent = compressed(self.compression, difference, seed)
        self.known.add_(difference.to(block.device))
        return sent


def _seeds(
    compression: Compression, push: int, count: int, purpose: Purpose, first: int, second: int, seed: int
) -> list[int]:
    """For as many blocks, drawn from the stream of this key; of fragments the number of the push, whose turn it is."""
    if isinstance(compression, Fragment):
        return [push] * count
    drawn: list[int] = stream(purpose, first, second, seed).integers(2**63, size=count).tolist()
    return drawn


def _share(density: float, n: int) -> int:
    """k: at least one element, if there is any."""
    return min(n, max(1, math.ceil(density * n * (1.0 - 1e-12))))  # 0.07 * 100 is above 7


def _largest(values: NDArray[np.float32], k: int) -> Tensor:
    """The places of the k largest, of values >= 0, ascending; of equal ones the first.

    They are looked for among those above a bound that a sample gives: numpy's partition is slow where most are equal.
    """
    n = len(values)
    if k == n:
        return torch.arange(n)
    if np.isnan(values.max()):
        return torch.from_numpy(np.sort(np.argpartition(values, n - k)[n - k :]))
    bound = _bound(values, k)
    places = np.flatnonzero(values > bound)
    if len(places) < k and bound > 0:
        bound = 0.0
        places = np.flatnonzero(values > bound)
    if len(places) > k:
        among = values[places]
        least = np.partition(among, len(places) - k)[len(places) - k]
        above, equal = places[among > least], places[among == least]
    else:
        above, equal = places, np.flatnonzero(values == bound)
    return torch.from_numpy(np.sort(np.concatenate([above, equal[: k - len(above)]])))


def _bound(values: NDArray[np.float32], k: int) -> float:
    """A value that probably a few more than k are above: four standard deviations of a count in the sample."""
    sample = values[:: max(1, len(values) // SAMPLE)]
    wanted = len(sample) * k / len(values)
    rank = math.ceil(wanted + 4 * math.sqrt(wanted) + 4)
    return float(np.sort(sample)[-rank]) if rank <= len(sample) else 0.0


def _read(data: Tensor, dtype: torch.dtype) -> Tensor:
    """Bytes as numbers of a type; torch makes no view of none."""
    return data.view(dtype) if data.numel() else data.new_empty(0, dtype=dtype)


def _ascend(places: Tensor, n: int) -> bool:
    """Whether they are places of n elements, each greater than the one before."""
    if not places.numel():
        return True
    return bool((places[1:] > places[:-1]).all()) and int(places[0]) >= 0 and int(places[-1]) < n


def _chunks(block: Tensor) -> Tensor:
    """[ceil(n / CHUNK), CHUNK], the last one filled with zeros."""
    return torch.nn.functional.pad(block, (0, -block.numel() % CHUNK)).view(-1, CHUNK)
