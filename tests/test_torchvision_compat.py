"""import_torchvision: nothing on a proper install, two schemas where the operators are absent."""

import importlib
import sys
from types import ModuleType

import pytest

from syncline import torchvision_compat
from syncline.torchvision_compat import import_torchvision

pytestmark = pytest.mark.xdist_group("torchvision")  # which takes seconds to import


def test_datasets_models_and_transforms_are_there() -> None:
    torchvision = import_torchvision()
    assert torchvision.datasets.CIFAR10.base_folder == "cifar-10-batches-py"
    assert callable(torchvision.models.resnet18)
    assert callable(importlib.import_module("torchvision.transforms.v2").Normalize)
    assert import_torchvision() is torchvision is sys.modules["torchvision"]


def test_a_proper_install_is_only_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    proper = ModuleType("torchvision")
    monkeypatch.setitem(sys.modules, "torchvision", proper)
    monkeypatch.setattr(torchvision_compat, "_declare_schemas", lambda: pytest.fail("declared"))
    assert import_torchvision() is proper


def test_absent_operators_are_declared_before_a_fresh_import(monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[str] = []
    fresh = ModuleType("torchvision")

    def import_module(name: str) -> ModuleType:
        steps.append(f"import {name}")
        if "declare" not in steps:
            raise RuntimeError("operator torchvision::nms does not exist")
        assert "torchvision.half_imported" not in sys.modules
        return fresh

    left = {"torchvision.half_imported": ModuleType("half"), "torchvisionary": ModuleType("other")}
    monkeypatch.setattr(sys, "modules", {**sys.modules, **left})
    monkeypatch.setattr(importlib, "import_module", import_module)
    monkeypatch.setattr(torchvision_compat, "_declare_schemas", lambda: steps.append("declare"))
    assert import_torchvision() is fresh
    assert steps == ["import torchvision", "declare", "import torchvision"]
    assert "torchvisionary" in sys.modules


def test_other_errors_are_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def import_module(name: str) -> ModuleType:
        raise RuntimeError("out of memory")

    monkeypatch.setattr(importlib, "import_module", import_module)
    monkeypatch.setattr(torchvision_compat, "_declare_schemas", lambda: pytest.fail("declared"))
    with pytest.raises(RuntimeError, match="out of memory"):
        import_torchvision()
