"""Where each tensor of a network lies in a flat vector, or in a block of one.

A gradient that no pass has reached is -0.0 in every element, which no sum with another gradient changes: the mean of
several gradients is so only if all of them are.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import torch
from torch import Tensor

UNREACHED = -0.0


@dataclass(frozen=True, slots=True)
class Place:
    """One tensor in a vector; or what a block has of it, as a vector."""

    name: str  # of the parameter
    begin: int
    shape: tuple[int, ...]
    is_matrix: bool = False  # the tensor has two axes or more

    @property
    def size(self) -> int:
        return torch.Size(self.shape).numel()

    @property
    def end(self) -> int:
        return self.begin + self.size

    def of(self, vector: Tensor) -> Tensor:
        """The view of it in a vector [n]."""
        return vector[self.begin : self.end].view(self.shape)


class Layout:
    """The tensors that cover a vector, in their order."""

    def __init__(self, places: Sequence[Place]) -> None:
        self.places = tuple(places)
        # The first element of each tensor: most gradients are told from UNREACHED by it.
        self._named = [place for place in self.places if place.size]
        self._firsts = torch.tensor([place.begin for place in self._named])

    @classmethod
    def of(cls, tensors: Mapping[str, Tensor]) -> "Layout":
        """Of named tensors, one after another."""
        places, begin = [], 0
        for name, tensor in tensors.items():
            places.append(Place(name, begin, tuple(tensor.shape), tensor.ndim > 1))
            begin += tensor.numel()
        return cls(places)

    @property
    def size(self) -> int:
        """Elements of the vector."""
        return self.places[-1].end if self.places else 0

    def views(self, vector: Tensor) -> list[Tensor]:
        """Of each tensor in a vector [n]."""
        return [place.of(vector) for place in self.places]

    def within(self, block: slice) -> "Layout":
        """Of a block of the vector; of a tensor that it cuts, a vector of what it has."""
        found = []
        for place in self.places:
            begin, end = max(place.begin, block.start), min(place.end, block.stop)
            if (begin, end) == (place.begin, place.end):
                found.append(replace(place, begin=begin - block.start))
            elif begin < end:
                found.append(replace(place, begin=begin - block.start, shape=(end - begin,)))
        return Layout(found)

    def cut(self, num: int) -> "Layout":
        """The same, with tensors cut where one of `num` blocks of equal size ends."""
        places: list[Place] = []
        for block in blocks(self.size, num):
            places += (replace(place, begin=block.start + place.begin) for place in self.within(block).places)
        return Layout(places)

    def matrices(self) -> list[tuple[slice, bool]]:
        """Stretches of the vector, in order, and whether they are of matrices, or of other tensors."""
        found: list[tuple[int, bool]] = []
        for place in self._named:
            if not found or found[-1][1] != place.is_matrix:
                found.append((place.begin, place.is_matrix))
        edges = [*(begin for begin, _ in found), self.size]
        return [(slice(*edge), is_matrix) for edge, (_, is_matrix) in zip(pairwise(edges), found, strict=True)]

    def blocks(self, num: int) -> list[slice]:
        """`num` contiguous blocks of whole tensors, as nearly equal as the tensors in their order allow.

        Raises:
            ValueError: there are fewer tensors.
        """
        ends = [0, *(place.end for place in self._named)]
        if len(self._named) < num:
            raise ValueError(f"{num} shards must each have a whole tensor of the model's, which has {len(self._named)}")
        chosen = [0]
        for number in range(1, num):
            wanted = self.size * number / num
            rest = range(chosen[-1] + 1, len(ends) - (num - number))
            chosen.append(min(rest, key=lambda edge: abs(ends[edge] - wanted)))
        chosen.append(len(ends) - 1)
        return [slice(ends[first], ends[last]) for first, last in pairwise(chosen)]

    def unreached(self, gradient: Tensor) -> list[Place]:
        """The tensors whose gradient [n] no pass has reached."""
        firsts = gradient[self._firsts.to(gradient.device)]
        suspected = ((firsts == 0) & firsts.signbit()).nonzero().flatten().tolist()
        return [place for place in (self._named[number] for number in suspected) if _is_unreached(place.of(gradient))]


def _is_unreached(gradient: Tensor) -> bool:
    return bool(((gradient == 0) & gradient.signbit()).all())


def blocks(size: int, num_shards: int) -> list[slice]:
    """`num_shards` contiguous blocks of a vector of `size` elements, equal to within one element."""
    edges = [size * shard // num_shards for shard in range(num_shards + 1)]
    return [slice(begin, end) for begin, end in pairwise(edges)]
