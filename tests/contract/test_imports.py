"""Which modules a file imports, read from its text."""

import ast

import pytest

from raysm.contract.imports import (
    find_module,
    imported_modules,
    imports_its_package_late,
    is_code,
    late_modules,
    read_tree,
    top_level_names,
)


def names(source):
    return list(top_level_names(ast.parse(source)))


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("import a, b.c", ["a", "b"]),
        ("from a.b import c", ["a"]),
        ("from . import a\nfrom .a import b", []),
        ("import importlib\nimportlib.import_module('a.b')", ["importlib", "a"]),
        ("import_module('a', package='b')", ["a"]),
        ("__import__('a')", ["a"]),
        ("import_module(name)\nimport_module()\n__import__(3)\nprint('a')", []),
        ("try:\n    import a\nexcept ImportError:\n    import b", ["a", "b"]),
    ],
)
def test_a_module_is_named_wherever_its_import_stands(source, expected):
    assert sorted(names(source)) == sorted(expected)


def test_an_import_inside_a_function_is_a_late_one(tmp_path):
    file = tmp_path / "a.py"
    file.write_text("import now\ndef f():\n    import later\nasync def g():\n    from later2 import x\n")
    file.write_text(file.read_text() + "h = lambda: __import__('later3')\nclass C:\n    import at_once\n")
    assert late_modules([file]) == {"later", "later2", "later3"}
    assert imported_modules([file]) == {"now", "at_once", "later", "later2", "later3"}


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("def f():\n    from . import b\n", True),
        ("def f():\n    def g():\n        from ..deep.b import x\n", True),
        ("from . import b\ndef f():\n    from b import x\n", False),
    ],
)
def test_an_import_by_dots_is_late_inside_a_function_alone(tmp_path, source, expected):
    (tmp_path / "a.py").write_text(source)
    assert imports_its_package_late(tmp_path / "a.py") is expected


def test_a_file_that_has_changed_is_read_anew(tmp_path):
    file = tmp_path / "a.py"
    file.write_text("import one")
    assert imported_modules([file]) == {"one"}
    file.write_text("import other")
    assert imported_modules([file]) == {"other"}
    file.unlink()
    assert imported_modules([file]) == set()


def test_what_stands_deeper_in_a_function_is_late_too_and_of_a_module_both_kinds_count(tmp_path):
    file = tmp_path / "a.py"
    file.write_text(
        "import both\ndef f():\n    import both\n    class C:\n        def g(self):\n            import deep\n"
    )
    assert late_modules([file]) == {"both", "deep"}
    assert imported_modules([file]) == {"both", "deep"}


@pytest.mark.parametrize("text", ["def f(:", "a\0b", "(" * 5000])
def test_a_file_that_python_cannot_read_imports_nothing(tmp_path, text):
    file = tmp_path / "a.py"
    file.write_text(text)
    assert imported_modules([file]) == set()
    with pytest.raises(SyntaxError):
        read_tree(file)


def test_a_package_wins_over_a_module_and_a_folder_of_code_comes_last(tmp_path):
    (tmp_path / "a").mkdir()
    assert find_module("a", tmp_path) is None
    (tmp_path / "a" / "inner.py").touch()
    assert find_module("a", tmp_path) == tmp_path / "a"
    (tmp_path / "a.py").touch()
    assert find_module("a", tmp_path) == tmp_path / "a.py"
    (tmp_path / "a" / "__init__.py").touch()
    assert find_module("a", tmp_path) == tmp_path / "a"


def test_a_folder_without_init_loses_to_an_installed_package_of_its_name_as_in_python(tmp_path):
    for name in ("pytest", "no_such_package"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "inner.py").touch()
    assert find_module("pytest", tmp_path) is None
    assert find_module("no_such_package", tmp_path) == tmp_path / "no_such_package"
    (tmp_path / "pytest" / "__init__.py").touch()
    assert find_module("pytest", tmp_path) == tmp_path / "pytest"


def test_code_is_told_from_data_by_its_suffix(tmp_path):
    assert is_code(tmp_path / "a.py")
    assert not is_code(tmp_path / "a.csv")
