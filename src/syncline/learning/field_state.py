"""The state of a dataclass that learns: its fields that are no arguments."""

from collections.abc import Mapping
from dataclasses import Field, dataclass, fields
from typing import Any

import torch
from torch import Tensor

SCRATCH = {"is_scratch": True}  # metadata of a field that is no part of the state


@dataclass(eq=False, slots=True)
class FieldState:
    """A dataclass whose state is in its fields with `init=False`: tensors (default None) and whole numbers (default 0).

    In the state each has its name without the underscore in front.
    """

    def state_dict(self) -> dict[str, Tensor]:
        """The state; its own tensors, which the next step changes. Empty as long as it has none."""
        values = {name: getattr(self, field.name) for name, field in self._kept().items()}
        if not any(isinstance(value, Tensor) for value in values.values()):
            return {}
        return {name: torch.as_tensor(value) for name, value in values.items() if value is not None}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Restore a copy of a state from `state_dict`; of an empty one that of an object that has done nothing."""
        for name, field in self._kept().items():
            value = field.default
            if name in state:
                value = state[name].clone() if value is None else int(state[name])
            setattr(self, field.name, value)

    def _kept(self) -> dict[str, Field[Any]]:
        """The fields, by their names in the state."""
        own = [field for field in fields(self) if not field.init and field.default in (None, 0)]
        return {field.name.lstrip("_"): field for field in own if "is_scratch" not in field.metadata}
