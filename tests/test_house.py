"""The figures of the house are counted as ``house.py`` says, and those that bind are kept."""

import ast
import textwrap

import pytest

from raysm.request.workload import KINDS
from tests import house

COMMENTS = 4.0
"""In 100 lines, at least."""


def tree(text):
    return ast.parse(textwrap.dedent(text))


def package(folder, **files):
    """Write modules of a package ``raysm`` below ``folder``, and read them as house does."""
    (folder / "raysm").mkdir()
    for name, text in {"__init__": "", **files}.items():
        (folder / "raysm" / f"{name}.py").write_text(textwrap.dedent(text))
    return house.modules_of(folder)


def test_a_comment_counts_where_it_stands_for_a_reader():
    assert house.comments("a = 1  # noqa: F401\nb = 2  # because\n# why\n#\nc = '# no comment'\n") == 2


def test_a_function_is_measured_without_its_docstring():
    (function,) = house.functions(tree('def f():\n    """One.\n\n    Two.\n    """\n    return 1\n'))
    assert house.body_lines(function) == 2


def test_parameters_are_counted_without_self_and_with_those_by_name():
    (function,) = house.functions(tree("def f(self, a, /, b, *rest, c=1, **more): ..."))
    assert house.parameters(function) == 3


def test_modules_that_import_each_other_are_a_circle(tmp_path):
    modules = package(
        tmp_path,
        a="from raysm import b",
        b="def late():\n    from raysm.c import name\n",
        c="import raysm.a",
        d="import raysm.a",
    )
    assert house.circles(modules) == [["raysm.a", "raysm.b", "raysm.c"]]


def test_a_run_of_lines_that_stands_twice_is_duplicated_and_imports_are_not(tmp_path):
    run = "\n".join(f"value_{number} = {number}" for number in range(6))
    imports = "\n".join(f"import module_{number}" for number in range(6))
    modules = package(tmp_path, a=f"{imports}\n{run}\n", b=f"{imports}\nif True:\n{textwrap.indent(run, '    ')}\n")
    assert house.duplicated(modules) == 12


def test_a_test_of_its_own_has_the_modules_name_and_folder(tmp_path):
    modules = package(tmp_path, a="", b="", c="")
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_a.py").write_text("from raysm import a\nimport raysm.b\n")
    assert house.untested(tmp_path, modules) == (["raysm.c"], ["raysm.b", "raysm.c"])


def test_a_value_is_named_by_how_it_was_got_where_it_is_stored_so(tmp_path):
    modules = package(tmp_path, a="found = 1\nprint(found)\ndef f(told, name): ...\nself.kept = found\n")
    assert house.named_by_how_they_were_got(modules["raysm.a"]) == [1, 3]


@pytest.fixture(scope="module")
def figures():
    return house.figures(house.ROOT)


def test_the_figures_of_this_tree_can_be_taken(figures):
    assert figures["modules"] > 200
    assert figures["lines of source"] > figures["functions"]


@pytest.mark.parametrize(
    ("figure", "most"),
    [
        ("median function lines", 5),
        ("modules > 400 lines", 0),
        ("functions > 8 parameters", 0),
        ("modules >= 100 lines without a comment", 0),
        ("isinstance / 1,000 lines", 3.0),
        ("values named by how they were got", 0),
        ("circles of imports", 0),
        ("duplicated lines", 200),
        ("modules that no test imports", 0),
        ("modules without a test of their own", 0),
    ],
)
def test_the_house_is_kept_as_it_is_meant_to_be(figures, figure, most):
    assert figures[figure] <= most, "python3 -m tests.house --details names where"


@pytest.mark.parametrize(("figure", "least"), [("comments / 100 lines", COMMENTS), ("tests : source", 0.9)])
def test_what_is_written_for_readers_and_for_tests_does_not_become_less(figures, figure, least):
    assert figures[figure] >= least, "python3 -m tests.house prints all figures"


def test_nobody_outside_of_request_asks_what_kind_a_workload_is():
    kinds = {"Workload", "EntryScript", "Wrapper"}
    kinds |= {name.rpartition(":")[2] for name in KINDS.values()} | {"SweepWorkload"}
    asking = [
        f"{name}:{node.lineno}"
        for name, module in house.modules_of(house.ROOT).items()
        if not name.startswith("raysm.request.")
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in ("isinstance", "issubclass")
        if kinds & {part.id for part in ast.walk(node.args[1]) if isinstance(part, ast.Name)}
    ]
    assert asking == []


def test_no_file_of_the_kernels_is_longer_than_a_module_may_be():
    lines = {path.name: len(path.read_text().splitlines()) for path in (house.ROOT / "raysm").rglob("*.[ch]")}
    assert lines
    assert {name: count for name, count in lines.items() if count > house.MOST_LINES} == {}
