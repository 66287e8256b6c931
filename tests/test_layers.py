"""Which part may import which, and what `import raysm` loads."""

import ast
import graphlib
import importlib.util
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import raysm
from raysm.core.features import all_paths
from raysm.errors import option

PACKAGE = Path(raysm.__file__).parent

ALLOWED = {
    "errors": set(),
    "core.features": {"errors"},
    "core.request": {"errors"},
    "core.protocol": {"errors", "core.request"},
    "core.client": {"errors", "core.request", "core.protocol"},
    "instance": {"errors", "core.request", "core.protocol"},
    "cli": {"errors", "core.request", "core.protocol", "core.client"},
    "client": {"core.client"},
    "testing": {"errors", "core.request", "core.protocol", "core.client"},
    "training": {"features.training"},
    "sdk": {"errors", "features.training"},
    "__main__": {"cli"},
    "site": set(),
}
"""What each part may import. In features and in ``local`` it depends on the file: see ``SIDES``."""

EVERYWHERE = {"core", "core.features", "errors"}
REQUEST = {"errors", "core.request", "core.protocol"}
LAPTOP = {"errors", "core.request", "core.protocol", "core.client", "cli"}
JOB = {"errors", "core.request", "core.protocol", "instance"}
SIDES = {
    "features": (
        (r"(request|space|protocol|mirror)\.py", REQUEST),
        (r"(runner|tracked)\.py|cluster/", JOB),
        (r"", LAPTOP),
    ),
    # The command asks the server as any client does.
    "local": ((r"command(_arguments)?\.py", LAPTOP), (r"", REQUEST)),
}
"""By the beginning of a file's path in its feature, or in ``local``: what it may import. The first
one counts."""

TIES = {
    # The doctor also checks what the embedded SageMaker needs; no feature is behind this.
    "features/account/doctor_command.py": {"local"},
    # For type checkers alone: inside of a session a remote function returns one of its calls.
    "features/script/client.py": {"features.session"},
    # A trial of several workers is a training: it uses the training's group of workers.
    "features/sweep/cluster/group.py": {"features.training"},
}
"""What else a module imports: what is left to untie, and what stays for a reason. No line is
added."""

STANDARD_LIBRARY_ONLY = ("errors", "core.request", "core.protocol", "instance")
"""They also run in a bare image, before any package is installed."""


def part_of(name):
    """Return the part of the package that a dotted name belongs to: ``core.client``, ``features.grid``, ``local``."""
    _, part, *rest = name.split(".")
    return f"{part}.{rest[0]}" if part in ("core", "features") and rest else part


def modules():
    """Yield each module of the package with its part; packages of parts have none."""
    for path in sorted(PACKAGE.rglob("*.py")):
        name = ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(
            ".__init__"
        )
        if name not in ("raysm", "raysm.core", "raysm.features"):
            yield path, part_of(name)


def allowed(path, part):
    room = part.partition(".")[0]
    if room not in SIDES:
        return ALLOWED[part]
    inside = path.relative_to(PACKAGE.joinpath(*part.split("."))).as_posix()
    return next(below for pattern, below in SIDES[room] if re.match(pattern, inside))


def statements(tree):
    """Yield every statement below ``tree``."""
    for name in ("body", "orelse", "finalbody", "handlers", "cases"):
        for inner in getattr(tree, name, []):
            yield inner
            yield from statements(inner)


def imported(body):
    """Yield what the statements import: ``module``, or ``module.name``."""
    for node in body:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def test_a_module_imports_only_from_parts_below_its_own():
    for path, part in modules():
        names = imported(statements(ast.parse(path.read_text())))
        used = {
            part_of(name)
            for name in names
            if name.startswith("raysm.") and name != "raysm.__version__"
        }
        inside = path.relative_to(PACKAGE).as_posix()
        assert used - {part} - EVERYWHERE - allowed(path, part) == TIES.get(inside, set()), inside


def test_no_modules_import_each_other():
    names = {
        ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts): path
        for path, _ in modules()
    }
    uses = {}
    for name, path in names.items():
        found = set(imported(statements(ast.parse(path.read_text()))))
        # ``from raysm.a import b`` imports the module ``raysm.a.b``, or the name ``b`` of the
        # module ``raysm.a``.
        uses[name] = {used if used in names else used.rpartition(".")[0] for used in found} & set(
            names
        ) - {name}
    graphlib.TopologicalSorter(uses).prepare()


def test_what_starts_in_a_bare_image_needs_only_the_standard_library():
    for path, part in modules():
        inside = path.relative_to(PACKAGE).as_posix()
        is_work = inside.startswith("instance/work/")
        if (part in STANDARD_LIBRARY_ONLY and not is_work) or re.fullmatch(
            r"features/\w+/request\.py", inside
        ):
            at_import = {name.split(".")[0] for name in imported(ast.parse(path.read_text()).body)}
            assert at_import <= sys.stdlib_module_names | {"raysm"}, path


ROOMS = {part.partition(".")[0] for part in ALLOWED} | set(SIDES)

NAMED = re.compile(rf"(?<![\w/.])raysm\.(?:{'|'.join(sorted(ROOMS))})(?:\.[A-Za-z_]\w*)+")
"""Dotted names of raysm's modules and of what is in them."""


def is_there(name):
    """Whether a module has that path, or names what stands behind the path of one."""
    parts = name.split(".")[1:]
    for length in range(len(parts), 0, -1):
        path = PACKAGE.joinpath(*parts[:length])
        file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
        if file.is_file():
            return (
                length == len(parts)
                or re.search(rf"\b{parts[length]}\b", file.read_text()) is not None
            )
    return False


def test_every_module_that_code_or_docs_name_is_there():
    # The page about own kinds shows how such modules are written.
    pages = [
        page for page in (PACKAGE.parent / "docs").rglob("*.md") if page.name != "extending.md"
    ]
    for path in [*PACKAGE.rglob("*.py"), *pages]:
        for name in NAMED.findall(path.read_text()):
            assert is_there(name), (path, name)


HEAVY = {
    "ray",
    "torch",
    "boto3",
    "botocore",
    "numpy",
    "pandas",
    "pyarrow",
    "rich",
    "sagemaker",
    "cloudpickle",
}


def pulled_in(code):
    out = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys\nprint(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
    )
    return set(out.stdout.splitlines()[-1].split())


def test_importing_raysm_and_asking_for_its_request_types_pulls_in_nothing_heavy():
    code = "import raysm; raysm.Cluster, raysm.Similarity, raysm.report, raysm.client, dir(raysm)"
    assert pulled_in(code) & HEAVY == set()


def test_importing_raysm_pulls_in_nothing_else_of_it():
    # What is not read takes no time: on any machine this holds more than a number of seconds would.
    assert {name for name in pulled_in("import raysm") if name.startswith("raysm")} == {"raysm"}


def test_whoever_submits_does_not_wait_for_what_only_a_tunnel_needs():
    modules = pulled_in("import raysm; raysm.submit")
    assert "asyncio" not in modules
    assert not any(name.startswith("raysm.features.dashboard.tunnel") for name in modules)


def test_an_instance_does_not_wait_before_its_bootstrap_for_what_only_that_or_an_installation_needs():
    assert pulled_in("import raysm.instance.entrypoint") & {"asyncio", "urllib.request"} == set()


LATER = (
    *(
        "core.client.costs.bill",
        "core.client.logs.stream",
        "core.client.logs.metrics",
        "core.client.logs.rendering",
        "core.client.results.result",
        "features.experiments.tracker",
    ),
    *("core.client.source.function", "core.protocol.events", "features.experiments.mirror"),
)
"""What only one method of a job's handle asks for, or few jobs."""


def test_whoever_submits_does_not_wait_for_what_reads_a_job_back():
    # As names, which hold on any machine: together they were a quarter of the time until a job
    # could be sent.
    assert pulled_in("import raysm; raysm.submit") & {f"raysm.{name}" for name in LATER} == set()
    # A module that was renamed would be absent for ever.
    assert all(importlib.util.find_spec(f"raysm.{name}") for name in LATER)


def test_whoever_submits_does_not_wait_for_what_only_a_slip_or_a_notebook_needs():
    assert pulled_in("import raysm; raysm.submit") & {"difflib", "html", "platform"} == set()


@pytest.mark.parametrize(
    "name",
    [
        "testing.FakeSageMaker",
        pytest.param("sdk.Ray", marks=pytest.mark.long),
        "training.report",
        "client.submit.prepare",
    ],
)
def test_what_is_named_through_raysm_needs_no_further_import(name):
    code = f"import raysm; assert callable(raysm.{name})"
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True)


def test_dir_shows_the_public_names_alone():
    shown = set(dir(raysm))
    hooks = all_paths("hooks")
    assert shown == {
        *raysm.__all__,
        *hooks,
        "client",
        "errors",
        "sdk",
        "testing",
        "training",
        "__version__",
    }
    assert all(hasattr(raysm, name) for name in shown - {"sdk", "training"})


def test_what_the_client_has_not_is_an_attribute_error():
    assert not hasattr(raysm.client, "nonsense")


def test_every_public_name_can_be_imported():
    assert all(getattr(raysm, name) is not None for name in raysm.__all__)
    assert raysm.__all__ == sorted(raysm.__all__)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="'nonsense'"):
        raysm.nonsense  # noqa: B018


@pytest.mark.parametrize("column", ["id", "the id", "o'clock", "$x"])
def test_an_option_is_named_so_that_a_shell_and_python_can_take_it(column):
    text = option("id_column", column)
    assert shlex.split(text.partition(" (")[0]) == ["--id-column", column]
    assert text.endswith(f"(in Python: id_column={column!r})")


def test_an_option_whose_value_is_the_readers_has_none():
    assert option("image") == "--image … (in Python: image=…)"
