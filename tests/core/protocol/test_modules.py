"""A process has one copy of each of the user's modules: what crosses processes in a pickle is itself there."""

import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[3]

COLORS = """
import enum
class Color(enum.Enum):
    RED = 1
class Paint:
    def __init__(self, color):
        self.color = color
"""

SIZES = """
import enum
class Size(enum.Enum):
    BIG = 1
"""

PROGRAM = """
import pathlib, sys
import raysm
from colors import Color, Paint
from raysm.core.client.source.function import call_with_source, pickled_value
from sizes import Size

def compare(color, paint, size):
    from colors import Color, Paint
    return [color is Color.RED, color == Color.RED, isinstance(paint, Paint), paint.color is Color.RED], color, size

if __name__ == "__main__":
    folder = pathlib.Path(sys.argv[1])
    arguments = Color.RED, Paint(Color.RED), Size.BIG
    (folder / "job").write_bytes(raysm.Function(compare, *arguments).pickled())
    (folder / "session").write_bytes(call_with_source(compare, arguments, {}))
    (folder / "item").write_bytes(pickled_value(Size.BIG))
"""

CALL = """
import pathlib, pickle, sys
from raysm.instance.work.failure import pickled_value
folder = pathlib.Path(sys.argv[1])
function, args, kwargs = pickle.loads((folder / sys.argv[2]).read_bytes())
same, color, size = function(*args, **kwargs)
assert same == [True] * 4, same
item = pickle.loads((folder / "item").read_bytes())
assert repr(item) == "<Size.BIG: 1>", item
(folder / "value").write_bytes(pickled_value((color, size), "compare"))
"""

READ = """
import pathlib, pickle, sys
from colors import Color
from sizes import Size
color, size = pickle.loads((pathlib.Path(sys.argv[1]) / "value").read_bytes())
assert color is Color.RED
assert size is Size.BIG
"""


@pytest.fixture
def run(tmp_path):
    """Return what runs a program in a process of its own, which finds the modules in a folder."""

    def run(program, *arguments, beside=None):
        path = [str(REPOSITORY), *([] if beside is None else [str(beside)])]
        setup = f"import sys; sys.path[:0] = {path!r}\n"
        command = [sys.executable, "-c", setup + program, str(tmp_path), *arguments]
        subprocess.run(command, check=True, cwd=tmp_path, timeout=120)

    return run


@pytest.fixture
def project(tmp_path, run):
    """A folder with a program and two modules; the program has pickled its calls."""
    folder = tmp_path / "project"
    folder.mkdir()
    for name, text in {"colors.py": COLORS, "sizes.py": SIZES, "program.py": PROGRAM}.items():
        (folder / name).write_text(text)
    run(
        f"import runpy; runpy.run_path({str(folder / 'program.py')!r}, run_name='__main__')",
        beside=folder,
    )
    return folder


@pytest.fixture
def source(tmp_path, project):
    """The folder of a job's source: the module that the function imports when it runs."""
    folder = tmp_path / "source"
    folder.mkdir()
    (folder / "colors.py").write_text(COLORS)
    return folder


def test_in_a_job_a_module_that_travels_as_source_is_the_one_of_the_arguments(run, source):
    run(CALL, "job", beside=source)


def test_in_a_session_a_module_that_a_function_imports_late_is_the_one_of_the_arguments(
    run, project
):
    run(CALL, "session")


@pytest.mark.parametrize("kind", ["job", "session"])
def test_a_result_that_is_read_in_another_process_is_of_that_processs_module(
    run, project, source, kind
):
    run(CALL, kind, beside=source if kind == "job" else None)
    run(READ, beside=project)


def test_a_class_of_a_module_with_another_source_is_that_of_the_pickle(run, project, source):
    run(CALL, "job", beside=source)
    (project / "sizes.py").write_text(SIZES.replace("BIG = 1", "BIG = 2"))
    run(READ.replace("assert size is Size.BIG", "assert size.value == 1"), beside=project)


EDITED = """
import pathlib, pickle
from raysm.core.client.source.function import pickled_value
from raysm.core.protocol.modules import WithModules
path = pathlib.Path("edited_module.py")

def number():
    import edited_module
    return edited_module.NUMBER

for wanted in (1, 2):
    path.write_text(f"NUMBER = {wanted}")
    assert pickle.loads(pickle.dumps(WithModules(number, {path.name: path})))() == wanted
"""


def test_a_module_that_was_edited_is_imported_again_by_the_next_call(run, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    run(EDITED.replace('"edited_module.py"', '"elsewhere/edited_module.py"'))
