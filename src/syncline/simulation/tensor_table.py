"""The tensors of a run in virtual time on their way to a checkpoint and back, each of them once.

Versions and gradients are held in several places at one time (a snapshot, a message, a pending push). A state holds
their numbers in these places; whatever takes one from the table counts as one of its readers.
"""

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor

from syncline.learning.parameters import Gradient, Version
from syncline.learning.worker_state import Stateful


class TensorTable:
    """Things by number, in the order in which they were first put here.

    Args:
        tensors: what another table held, to be taken; none to put things there.
        device: of what is taken.
    """

    def __init__(self, tensors: Mapping[str, Tensor] | None = None, device: torch.device | None = None) -> None:
        self.tensors = dict(tensors or {})
        self._device = device
        self._numbers: dict[int, int] = {}  # by the identity of the thing
        self._things: dict[int, Version | Gradient] = {}  # keeps what was numbered, or was taken before

    def put(self, thing: Version | Gradient | None) -> int | None:
        """Its number; None for None, where only time is simulated."""
        if thing is None:
            return None
        number = self._numbers.setdefault(id(thing), len(self._numbers))
        if number not in self._things:
            self._things[number] = thing
            self.tensors[f"{number}-buffers"] = thing.buffers
            self.tensors[f"{number}-flat"] = thing.weights if isinstance(thing, Version) else thing.flat
        return number

    def version(self, number: int | None) -> Version | None:
        """The version with this number, for one more reader."""
        return None if number is None else self.sent(number)

    def sent(self, number: int) -> Version:
        """The same of one that there is."""
        version = self.current(number)
        version.readers += 1
        return version

    def current(self, number: int) -> Version:
        """The same for the shard itself, which is no reader."""
        thing = self._things.get(number) or Version(self._take(f"{number}-flat"), self._take(f"{number}-buffers"))
        assert isinstance(thing, Version)
        self._things[number] = thing
        return thing

    def gradient(self, number: int | None) -> Gradient | None:
        """The gradient with this number, for one more shard."""
        if number is None:
            return None
        thing = self._things.get(number) or Gradient(
            self._take(f"{number}-flat"), self._take(f"{number}-buffers"), readers=0
        )
        assert isinstance(thing, Gradient)
        self._things[number] = thing
        thing.readers += 1
        return thing

    def put_all(self, name: str, tensors: Mapping[str, Tensor]) -> None:
        """Tensors that one place alone holds."""
        self.tensors |= {f"{name}/{key}": tensor for key, tensor in tensors.items()}

    def take_all(self, name: str) -> dict[str, Tensor]:
        """What `put_all` put there."""
        return {
            key.removeprefix(f"{name}/"): self._take(key) for key in list(self.tensors) if key.startswith(f"{name}/")
        }

    def put_states(self, parts: Iterable[tuple[str, Stateful]]) -> None:
        """The tensors of parts by name."""
        for name, part in parts:
            self.put_all(name, part.state_dict())

    def take_states(self, parts: Iterable[tuple[str, Stateful]]) -> None:
        """Let each part continue from what `put_states` put there."""
        for name, part in parts:
            part.load_state_dict(self.take_all(name))

    def _take(self, key: str) -> Tensor:
        return self.tensors.pop(key).to(self._device, copy=True)
