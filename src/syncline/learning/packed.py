"""What an object of the user's keeps, wherever it keeps it, as tensors: of an optimizer above all.

Numbers, texts, tensors, arrays and generators of random numbers are kept, in mappings, sequences and attributes of
objects, at any depth. Functions, classes, modules and other constants are as the constructor left them.
"""

import json
import logging
import random
from collections import deque
from collections.abc import Mapping, MutableMapping, Sequence
from enum import Enum
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor

STRUCTURE = "structure"  # name of the tensor that holds JSON, as bytes
SCALARS = (bool, int, float, str, type(None))
CONSTANTS = (
    *(type, BuiltinFunctionType, FunctionType, MethodType, ModuleType, Enum, logging.Logger),
    *(torch.dtype, torch.device, torch.layout, torch.memory_format),
)


class NotPlainError(ValueError):
    """Something cannot be kept; the message names it."""


def pack(kept: Mapping[str, Any], references: Sequence[Any]) -> dict[str, Tensor]:
    """The values of these attributes.

    Args:
        references: objects that are not kept themselves, such as parameters; they are referred to by their numbers.

    Raises:
        NotPlainError: one has something of another kind.
    """
    packer = _Packer(references)
    structure = packer.of(kept, "")
    text = torch.frombuffer(bytearray(json.dumps(structure), "utf8"), dtype=torch.uint8)
    return {STRUCTURE: text, **packer.tensors}


def unpack(packed: Mapping[str, Tensor], into: MutableMapping[str, Any], references: Sequence[Any]) -> None:
    """Set the attributes to what `pack` gave. Objects that are there already stay the same ones, with new content."""
    structure = json.loads(bytes(packed[STRUCTURE].cpu().tolist()))
    with torch.no_grad():
        _Unpacker(packed, references).of(structure, into)


class _Packer:
    def __init__(self, references: Sequence[Any]) -> None:
        self.tensors: dict[str, Tensor] = {}
        self._references = {id(each): number for number, each in enumerate(references)}
        self._seen: dict[int, int] = {}
        self._alive: list[Any] = []  # so that no id is used twice

    def of(self, value: Any, name: str) -> Any:
        """JSON of [kind, ...]."""
        if isinstance(value, CONSTANTS):
            return ["constant"]
        if type(value) in SCALARS:
            return ["scalar", value]
        if id(value) in self._references:
            return ["reference", self._references[id(value)]]
        if id(value) in self._seen:
            return ["again", self._seen[id(value)]]
        number = self._seen[id(value)] = len(self._seen)
        self._alive.append(value)
        return [*self._of_object(value, name, str(number)), number]

    def _of_object(self, value: Any, name: str, key: str) -> list[Any]:
        match value:
            case Tensor():
                self.tensors[key] = value.detach().clone(memory_format=torch.contiguous_format)
                return ["tensor"]
            case np.ndarray() | np.generic() if np.asarray(value).dtype.kind in "biuf":
                self.tensors[key] = torch.from_numpy(np.array(value))
                return ["array" if isinstance(value, np.ndarray) else "number"]
            case torch.Generator():
                self.tensors[key] = value.get_state()
                return ["torch generator"]
            case np.random.Generator():
                return ["numpy generator", self.of(value.bit_generator.state, name)]
            case random.Random():
                return ["python generator", self.of(value.getstate(), name)]
            case Mapping():
                named = [(key, each, key if isinstance(key, str) else "...") for key, each in value.items()]
                return ["mapping", [[self.of(key, name), self.of(each, f"{name}.{told}")] for key, each, told in named]]
            case list() | tuple() | set() | deque():
                kind = next(kind for kind in (list, tuple, set, deque) if isinstance(value, kind))
                return [kind.__name__, [self.of(each, f"{name}.{place}") for place, each in enumerate(value)]]
        if not hasattr(value, "__dict__"):
            raise NotPlainError(f"{name.lstrip('.')} is a {type(value).__name__}")
        return ["object", [[key, self.of(each, f"{name}.{key}")] for key, each in vars(value).items()]]


class _Unpacker:
    def __init__(self, tensors: Mapping[str, Tensor], references: Sequence[Any]) -> None:
        self._tensors, self._references = tensors, references
        self._made: dict[int, Any] = {}

    def of(self, packed: list[Any], old: Any) -> Any:
        """The value; `old`, what is in its place now, if that can hold it."""
        match packed:
            case ["constant"]:
                return old
            case ["scalar", value]:
                return value
            case ["reference", number]:
                return self._references[number]
            case ["again", number]:
                return self._made[number]
        *content, number = packed
        kinds = {"mapping": self._mapping, "list": self._list, "object": self._object}
        fill = kinds.get(content[0])
        self._made[number] = self._plain(content, old, str(number)) if fill is None else fill(content[1], old, number)
        return self._made[number]

    def _plain(self, content: list[Any], old: Any, key: str) -> Any:
        match content:
            case ["tensor"]:
                tensor = self._tensors[key]
                if isinstance(old, Tensor) and (old.shape, old.dtype) == (tensor.shape, tensor.dtype):
                    return old.copy_(tensor)
                return tensor.clone()
            case ["array"]:
                return self._tensors[key].cpu().numpy().copy()
            case ["number"]:
                return self._tensors[key].cpu().numpy()[()]
            case ["torch generator"]:
                old.set_state(self._tensors[key].cpu())
            case ["numpy generator", state]:
                old.bit_generator.state = self.of(state, None)
            case ["python generator", state]:
                old.setstate(self.of(state, None))
            case [kind, each]:
                values = [self.of(value, None) for value in each]
                if kind == "deque":
                    return deque(values, getattr(old, "maxlen", None))
                return tuple(values) if kind == "tuple" else set(values)
        return old

    def _mapping(self, pairs: list[Any], old: Any, number: int) -> Any:
        into = self._made[number] = old if isinstance(old, MutableMapping) else {}
        found = {}
        for key, value in pairs:
            name = self.of(key, None)
            found[name] = self.of(value, into.get(name) if isinstance(old, MutableMapping) else None)
        into.clear()
        into.update(found)
        return into

    def _list(self, values: list[Any], old: Any, number: int) -> Any:
        into = self._made[number] = old if isinstance(old, list) else []
        before = [*into, *[None] * len(values)]
        into[:] = [self.of(value, before[place]) for place, value in enumerate(values)]
        return into

    def _object(self, attributes: list[Any], old: Any, number: int) -> Any:
        self._made[number] = old
        for name, value in attributes:
            setattr(old, name, self.of(value, getattr(old, name, None)))
        return old
