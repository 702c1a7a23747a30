"""What a worker keeps from push to push, beside the weights: of an optimizer, of what pushes have left out."""

from collections import deque
from collections.abc import Mapping
from typing import Protocol

from torch import Tensor


class Stateful(Protocol):
    """Something that changes with pushes."""

    def state_dict(self) -> dict[str, Tensor]:
        """Its own tensors, which may change."""
        ...

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Continue from a copy of what `state_dict` gave; from an empty one as at first."""
        ...


class WorkerState:
    """Several parts, by name, as one; and as they were before the last pushes.

    Names hold no dot.

    Args:
        num_before: pushes, at least 1.
    """

    def __init__(self, parts: Mapping[str, Stateful], num_before: int = 1) -> None:
        self._parts = parts
        self.before = deque[dict[str, Tensor]](maxlen=num_before)  # the states at the last `begin`s

    def begin(self) -> None:
        """A push begins, which may come to nothing."""
        self.before.append({name: tensor.clone() for name, tensor in self.state_dict().items()})

    def undo(self) -> None:
        """The push that was begun last is not sent."""
        self.load_state_dict(self.before[-1])

    def state_dict(self) -> dict[str, Tensor]:
        """Of all parts: their own tensors, which may change."""
        states = {name: part.state_dict() for name, part in self._parts.items()}
        return {f"{name}.{key}": tensor for name, state in states.items() for key, tensor in state.items()}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Continue from a copy of what `state_dict` gave, of which other entries are ignored."""
        for name, part in self._parts.items():
            begin = f"{name}."
            part.load_state_dict({key.removeprefix(begin): t for key, t in state.items() if key.startswith(begin)})
