"""The only module that imports torchvision.

torchvision's published wheel is built for CUDA. With a CPU-only torch its operators cannot be loaded, and its import
ends with "operator torchvision::nms does not exist", although datasets, models and transforms need none of them.
transformers also imports torchvision and fails with it: call import_torchvision before importing one of its models.
"""

import functools
import importlib
import sys
from types import ModuleType

import torch

SCHEMAS = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
)


def import_torchvision() -> ModuleType:
    """Import torchvision; with a CPU-only torch, declare the schemas of two operators first.

    On a proper install this is a plain import. Otherwise nms and torchvision.io's decoders stay unavailable.

    Raises:
        ImportError: torchvision is not installed.
    """
    try:
        return importlib.import_module("torchvision")
    except RuntimeError as error:
        if "torchvision::nms" not in str(error):
            raise
    for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
        del sys.modules[name]
    _declare_schemas()
    return importlib.import_module("torchvision")


@functools.cache  # keeps the library object, and so the declaration, alive
def _declare_schemas() -> torch.library.Library:
    library = torch.library.Library("torchvision", "DEF")  # type: ignore[no-untyped-call]
    for schema in SCHEMAS:
        library.define(schema)  # type: ignore[no-untyped-call]
    return library
