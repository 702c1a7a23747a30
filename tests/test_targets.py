"""The user's code: what of it counts for an identity, and how its faults are told."""

import ast
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from own import using, write

from syncline.targets import TargetError, essence, fault, imported, instantiated, source_hash
from tests.refusals import refusal

SOURCE = {
    "top.py": "import helper\nfrom pack.inner import VALUE\n\n\nclass Thing:\n    size = helper.SIZE + VALUE\n",
    "helper.py": "SIZE = 3\n",
    "pack/__init__.py": "",
    "pack/inner.py": "from . import deep\n\nVALUE = deep.LOW\n",
    "pack/deep.py": "LOW = 1  # a comment\n",
    "aside.py": "OTHER = 1\n",
}


def hash_with(folder, **changed: str) -> str:
    write(folder, SOURCE | {f"{name.replace('__', '/')}.py": text for name, text in changed.items()})
    with using(folder):
        sys.path.append(str(folder))
        return source_hash("top.Thing")


@pytest.mark.parametrize("name", ["top", "helper", "pack__inner", "pack__deep"])
def test_a_changed_line_of_what_the_target_imports_changes_the_hash(tmp_path, name: str) -> None:
    before = hash_with(tmp_path)
    path = f"{name.replace('__', '/')}.py"
    assert hash_with(tmp_path, **{name: SOURCE[path] + "MORE = 1\n"}) != before
    assert hash_with(tmp_path, **{name: SOURCE[path] + "\n\n# more\n"}) == before
    assert hash_with(tmp_path, **{name: SOURCE[path].replace("\n", "   # why\n")}) == before


def test_an_installed_package_has_no_hash() -> None:
    assert source_hash("torchvision.models.resnet18") == ""
    assert source_hash("json.JSONDecoder") == ""


@given(st.lists(st.sampled_from(["x = 1", "y = '# no comment'", "def f():\n    return 2", "z = '''a\n# text\nb'''"])))
def test_what_is_left_of_a_source_computes_the_same(lines: list[str]) -> None:
    text = "\n".join(f"{line}  # a comment\n\n" for line in lines)
    assert ast.dump(ast.parse(essence(text))) == ast.dump(ast.parse("\n".join(lines)))


@pytest.mark.parametrize("mark", ["\x0c", "\x0b", "\x85", "\u2028"])
def test_a_sign_that_ends_no_line_of_python_hides_none(mark: str) -> None:
    text = f"# {mark} a comment\n{mark if mark == chr(12) else ''}\nunits = 8  # a comment\n"
    assert essence(text).strip() == "units = 8"


def test_a_source_is_read_in_its_own_encoding(tmp_path) -> None:
    def hash_of(source: bytes) -> str:
        (tmp_path / "marked.py").write_bytes(source)
        with using(tmp_path):
            sys.path.append(str(tmp_path))
            return source_hash("marked.X")

    assert hash_of(b"\xef\xbb\xbfX = 1\n") == hash_of(b"X = 1\n") != ""
    assert hash_of(b"# -*- coding: latin-1 -*-\nX = '\xe9'\n") == hash_of("X = 'é'\n".encode())
    with pytest.raises(TargetError, match=r"^[^\n]*marked\.py[^\n]*$"):
        hash_of(b"X = '\xe9'\n")


def test_arguments_may_have_targets() -> None:
    made = instantiated(
        {"date": {"_target_": "datetime.date", "year": 2020, "month": 1, "day": 2}, "more": [1, {"a": 2}]}
    )
    assert (made["date"].year, made["more"]) == (2020, [1, {"a": 2}])


@pytest.mark.parametrize(
    ("target", "line"),
    [
        ("Net", "_target_ must be package.module.name, got 'Net'"),
        ("a.b-c", "_target_ must be package.module.name, got 'a.b-c'"),
        (
            "nowhere.Net",
            "_target_=nowhere.Net: there is no module nowhere here; it must lie in a folder of --config-dir",
        ),
        ("json.Nothing", "_target_=json.Nothing: json has no Nothing"),
    ],
)
def test_a_target_that_is_not_there_is_one_line(target: str, line: str) -> None:
    assert refusal(TargetError, imported, target).startswith(line)


def test_an_error_is_told_with_the_last_line_of_the_users_code(tmp_path) -> None:
    write(tmp_path, {"faulty.py": "import json\n\n\ndef f():\n    return json.loads('{')\n"})
    with using(tmp_path):
        sys.path.append(str(tmp_path))
        function = imported("faulty.f")
    with pytest.raises(ValueError, match="Expecting") as error:
        function()
    assert (fault(error.value) or "").startswith(f"{tmp_path}/faulty.py:5: JSONDecodeError: Expecting")
    assert fault(TargetError("one line")) is None
