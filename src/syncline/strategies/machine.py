"""What saves and loads its state by itself: state machines, and their parts."""

from collections.abc import Mapping
from functools import cache
from typing import Any, get_type_hints

import msgspec

from syncline.strategies.protocol import Command


class PlainState:
    """Base of what has a state: the attributes that its class annotates, of plain types or of such a base.

    Plain are numbers, texts, None, and lists, sets, dicts and msgspec's structs of such.
    """

    __slots__ = ()

    def state_dict(self) -> dict[str, Any]:
        """The whole state in types that JSON can hold."""
        return {name: _plain(getattr(self, name)) for name in _state(type(self))}  # type: ignore[arg-type]

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a state from `state_dict`."""
        for name, kind in _state(type(self)).items():  # type: ignore[arg-type]
            if hasattr(own := getattr(self, name), "load_state_dict"):
                own.load_state_dict(state[name])
            else:
                setattr(self, name, msgspec.convert(state[name], kind, str_keys=True))


class Machine(PlainState):
    """Base of strategies."""

    __slots__ = ()

    def begin(self) -> list[Command]:
        """The commands at the start (protocol.py); most have none."""
        return []


def _plain(value: Any) -> Any:
    if hasattr(value, "state_dict"):
        return value.state_dict()
    return sorted(value) if isinstance(value, set) else msgspec.to_builtins(value, str_keys=True)


@cache
def _state(kind: Any) -> dict[str, Any]:
    """Names and types of the attributes that its class and the bases annotate."""
    return get_type_hints(kind)
