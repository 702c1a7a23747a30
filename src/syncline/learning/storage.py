"""Tensors of a module that share memory: a parameter is moved elsewhere only with all that look at it."""

from collections.abc import Iterator, Mapping, Sequence
from types import FunctionType, MethodType, ModuleType
from typing import Any

import torch
from torch import Tensor, nn

Named = tuple[str, Tensor]


def move(modules: Sequence[nn.Module], moved: Mapping[str, Tensor], views: Sequence[Tensor]) -> None:
    """Give each of these parameters and buffers the memory of its view; tensors that share its memory follow.

    Args:
        modules: that hold them.
        moved: by their names.
        views: of the same shapes, which hold their values.

    Raises:
        ValueError: memory is shared by two parameters or buffers of `moved`, or by something that cannot follow.
    """
    sharing = _sharing(modules, moved)
    for (name, tensor), view, others in zip(moved.items(), views, sharing, strict=True):
        begin, end = _extent(tensor)
        if tensor.numel() * tensor.element_size() > end - begin:
            raise ValueError(f"{name} has several elements in one place of memory (expand): clone it")
        is_alike = tensor.stride() == view.stride()
        for other_name, other in others:
            is_within = begin <= _extent(other)[0] and _extent(other)[1] <= end
            if not (is_alike and is_within and other.dtype == tensor.dtype and other.grad_fn is None):
                raise ValueError(f"{other_name} shares memory with {name}, which it must not: make it in forward")
        offset = view.storage_offset() - tensor.storage_offset()
        tensor.data = view
        for _, other in others:
            other.data = view.as_strided(other.shape, other.stride(), other.storage_offset() + offset)


def _sharing(modules: Sequence[nn.Module], moved: Mapping[str, Tensor]) -> list[list[Named]]:
    """What shares memory with each of these, and is none of them. Raises ValueError as `move`."""
    ours = {id(tensor) for tensor in moved.values()}
    others = [(name, tensor) for module in modules for name, tensor in _tensors_of(module) if id(tensor) not in ours]
    by_storage: dict[int, list[Named]] = {}
    for name, tensor in (*moved.items(), *others):
        if tensor.layout == torch.strided and not nn.parameter.is_lazy(tensor):
            by_storage.setdefault(tensor.untyped_storage()._cdata, []).append((name, tensor))
    found = []
    for name, tensor in moved.items():
        alike = by_storage[tensor.untyped_storage()._cdata]
        near = [each for each in alike if each[1] is not tensor and _overlap(tensor, each[1])]
        for other_name, other in near:
            if id(other) in ours:
                raise ValueError(
                    f"{name} and {other_name} share memory, but are two tensors: tie them as one, such as "
                    f"`b.weight = a.weight`"
                )
        known = {each._cdata for _, each in alike}
        known |= {each._base._cdata for _, each in alike if each._base is not None}  # of which it is a view
        storage = tensor.untyped_storage()
        if torch._C._storage_Use_Count(storage._cdata) > len(known) + 1:  # and `storage`
            raise ValueError(
                f"{name} shares memory with a tensor that is no attribute of the model, such as one in a closure"
            )
        found.append(near)
    return found


def _overlap(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors with one storage have an element's place in common, by their first and last places."""
    (begin, end), (other_begin, other_end) = _extent(one), _extent(other)
    return begin < other_end and other_begin < end


def _extent(tensor: Tensor) -> tuple[int, int]:
    """In bytes of its storage."""
    if not tensor.numel():
        return 0, 0
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    size, offset = tensor.element_size(), int(tensor.storage_offset())
    return offset * size, (offset + int(last) + 1) * size


def _tensors_of(module: nn.Module) -> Iterator[Named]:
    """All tensors that the module and its parts hold, in whatever attribute."""
    seen: set[int] = set()
    for prefix, part in module.named_modules():
        for name, value in vars(part).items():
            yield from _tensors_in(value, f"{prefix}.{name}".lstrip("."), seen)


def _tensors_in(value: Any, name: str, seen: set[int]) -> Iterator[Named]:
    """Each tensor in it once: in mappings, sequences, sets and attributes, but not in further modules."""
    if id(value) in seen or isinstance(value, nn.Module | type):
        return
    seen.add(id(value))
    if isinstance(value, Tensor):
        yield name.replace("_parameters.", "").replace("_buffers.", ""), value
    elif isinstance(value, Mapping):
        for key, each in value.items():
            yield from _tensors_in(each, f"{name}.{key}", seen)
    elif isinstance(value, list | tuple | set | frozenset):
        for place, each in enumerate(value):
            yield from _tensors_in(each, f"{name}.{place}", seen)
    elif hasattr(value, "__dict__") and not isinstance(value, FunctionType | MethodType | ModuleType):
        for key, each in vars(value).items():
            yield from _tensors_in(each, f"{name}.{key}", seen)
