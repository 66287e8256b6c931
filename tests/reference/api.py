"""The pages of the API: one for each thing that a user does."""

import ast
import dataclasses
import importlib
import inspect
import re
import textwrap
import warnings

import raysm
from raysm.client.options import SubmitKeywords, SubmitOptions, default_of
from tests.reference import declared
from tests.reference.docstrings import cell, code, read, table

PAGES = {
    "submitting": (
        "Submitting",
        "Sending a job, and the handle on it.",
        ("submit", "load_options", "attach", "remote", "Job", "Result"),
    ),
    "sessions": (
        "Sessions",
        "A cluster that stays, called in milliseconds.",
        ("Session", "as_completed", "gather", "progress"),
    ),
    "experiments": (
        "Experiments",
        "What ran, how well, and for how much money.",
        ("jobs", "Jobs", "Experiment"),
    ),
    "request": (
        "What is asked for",
        "The values that `raysm.submit` takes beside the workload. Each is checked as it is made, and raises "
        "`InvalidRequest` where it cannot be.",
        (
            *("Cluster", "InstanceGroup", "Input", "AWS", "Local", "Limits", "Security", "Ports", "MetricDefinition"),
            "JobRequest",
        ),
    ),
    "workloads": (
        "Workloads",
        "What a job can run: the first argument of `raysm.submit`.",
        ("Script", "Function", "Similarity", "SimilarityResult", "TorchScript", "DataParallel", "Batch", "BatchResult"),
    ),
    "sweeps": (
        "Sweeps",
        "Many trials with other parameters each, on one cluster: what is tried, by which rules, and what was found.",
        (
            *("Sweep", "SweepResult", "uniform", "loguniform", "quniform", "qloguniform", "randint", "lograndint"),
            *("choice", "Asha", "Median", "Pbt", "tune", "Tuning", "attach_tuning"),
        ),
    ),
    "grids": (
        "Grids",
        "Many jobs of one request over regions, a job for each row of a file or of a query.",
        ("Grid", "ControllerJob", "Query", "shards", "Rules", "attach_grid", "GridHandle", "GridRow"),
    ),
    "inside": (
        "Inside a job",
        "What code that runs in a job may call.",
        ("report", "restored", "map_blocks", "row_blocks", "file_blocks", "RowBlock", "PlacedBlock"),
    ),
}
"""Title, first sentence and names of the pages of ``raysm``; a test holds that no public name is missing."""

MODULES = {"training": "raysm.training", "testing": "raysm.testing", "sdk": "raysm.sdk"}
"""Modules with a page of their own: all that is in ``__all__``."""

HANDLES = (
    *("BatchResult", "Experiment", "GridHandle", "GridRow", "Job", "Jobs", "Result", "SimilarityResult"),
    "SweepResult",
)
"""Classes that a user is given and never makes."""

VALUES = ("AWS", "Local")
"""Classes that users only make: their methods are for the client."""

PARTS = ("ConnectedSession", "SessionFunctions", "SessionNamespace")
"""Bases that are no more than a part of their one class: their members are that one's."""

ELSEWHERE = ("JobFailed", "JobStopped", "RaysmError")
"""Public names that are on the page of the errors."""


def pages():
    found = {f"api/{name}.md": _page(*page) for name, page in PAGES.items()}
    return found | {f"api/{page}.md": _module(name) for page, name in MODULES.items()}


def _page(title, intro, names):
    parts = [f"# {title}", intro]
    for name in names:
        parts += [f"## raysm.{name}", *_described(getattr(raysm, name), name)]
    return _joined(parts)


def _module(name):
    module = importlib.import_module(name)
    parts = [f"# {name}", read(module).text]
    for item in module.__all__:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # the SageMaker SDK's own, as it is imported
            value = getattr(module, item)
        parts += [f"## {name.removeprefix('raysm.')}.{item}", *_described(value, item)]
    return _joined(parts)


def _described(item, name):
    if inspect.isclass(item):
        return _class(item, name)
    return _function(item, name)


def _function(function, name):
    docstring = read(function)
    parts = [*_signature(function, name, docstring), docstring.text, *_arguments(function, docstring)]
    parts += [f"Returns: {docstring.returns}"] if docstring.returns else []
    return [*parts, *_raises(docstring)]


def _class(cls, name):
    docstring = read(cls)
    parts = [docstring.text]
    if dataclasses.is_dataclass(cls):
        rows = [
            [code(item.name), code(item.type), _default(item.value), cell(item.meaning)]
            for item in _fields(cls, docstring)
        ]
        parts.append(table(["field", "type", "default", "meaning"], rows) if rows else "")
    else:
        made = read(cls.__init__)
        parts += (
            [*_signature(cls.__init__, name, made), *_arguments(cls.__init__, made)]
            if "__init__" in vars(cls) and name not in HANDLES
            else []
        )
        rows = [[code(attribute), cell(text)] for attribute, text in docstring.entries.get("Attributes", {}).items()]
        parts.append(table(["attribute", "meaning"], rows) if rows else "")
    parts += _raises(docstring)
    properties, methods = _members(cls)
    if properties:
        rows = [[code(member), cell(read(value).text)] for member, value in properties.items()]
        parts += [table(["property", "meaning"], rows)]
    for member, method in methods.items():
        called = f"{name.lower() if name in HANDLES else name}.{member}"
        parts += [f"### {called}", *_function(method, called)]
    return parts


def _fields(cls, docstring):
    """Return the fields that a user may give; those of a class whose docstring has them under ``Attributes`` too."""
    given = {item.name for item in dataclasses.fields(cls) if item.init}
    texts = docstring.entries.get("Attributes", {})
    for item in declared.fields(cls):
        if item.name in given:
            yield dataclasses.replace(item, meaning=item.meaning or texts.get(item.name, ""))


def _members(cls):
    """Return the public properties and methods that a class adds to its bases, in the order of the source."""
    parts = [base for base in cls.__mro__[1:] if base.__name__ in PARTS]
    inherited = {name for base in cls.__mro__[1:] if base not in parts for name in vars(base)}
    properties, methods = {}, {}
    for name, value in [item for one in (cls, *parts) for item in vars(one).items()]:
        if name.startswith("_") or name in inherited:
            continue
        if isinstance(value, property):
            properties[name] = value.fget
        elif cls.__name__ not in VALUES and (
            isinstance(value, staticmethod | classmethod) or inspect.isfunction(value)
        ):
            methods[name] = getattr(cls, name)
    return properties, methods


def _signature(function, name, docstring):
    """Return how a function is called, where no table of its arguments says it."""
    parameters = [item for item in inspect.signature(function).parameters.values() if item.name != "self"]
    if "Args" in docstring.entries:
        return []
    signature = inspect.Signature([item.replace(annotation=item.empty) for item in parameters])
    return [f"```text\n{name}{signature}\n```"]


def _arguments(function, docstring):
    if "Args" not in docstring.entries:
        return []
    texts = docstring.entries["Args"]
    types = _annotations(function)
    rows = []
    for name, parameter in inspect.signature(function).parameters.items():
        if name == "self":
            continue
        if " lists them" in texts.get(name, "") and _options_type(function):
            rows += _option_rows(function, types)
            continue
        star = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
        missing = parameter.default is parameter.empty
        default = "" if missing else code(_shown(parameter.default))
        rows.append([code(star + name), code(types.get(name, "")), default, cell(texts.get(name, ""))])
    return [table(["argument", "type", "default", "meaning"], rows)] if rows else []


def _options_type(function):
    """Return the TypedDict of ``**options: Unpack[SubmitOptions]``; None where a function takes other keywords."""
    unpacked = re.fullmatch(r"Unpack\[(\w+)\]", str(_written_annotations(function).get("options", "")))
    return inspect.unwrap(function).__globals__[unpacked[1]] if unpacked else None


def _option_rows(function, types):
    # A TypedDict does not tell which one it extends before Python 3.12: submit's has the texts of both.
    texts = {}
    for kind in (SubmitOptions, _options_type(function)):
        texts |= read(kind).entries.get("Attributes", {})
    defaults = inspect.unwrap(function).__globals__.get("DEFAULTS", {})
    named = set(inspect.signature(function).parameters)
    return [
        [code(name), code(types.get(name, "")), code(_shown(defaults.get(name, default_of(name)))), cell(texts[name])]
        for name in _options_type(function).__annotations__
        if name not in named
    ]


def _annotations(function):
    """Return the annotations as they are written, and those of the options of a TypedDict."""
    kinds = [SubmitOptions] if (kind := _options_type(function)) is SubmitKeywords else []
    options = [item for one in (*kinds, *([kind] if kind else [])) for item in declared.fields(one)]
    return _written_annotations(function) | {item.name: item.type for item in options}


def _written_annotations(function):
    target = inspect.unwrap(function)
    try:
        (node,) = ast.parse(textwrap.dedent(inspect.getsource(target))).body
    except (OSError, TypeError, ValueError):
        return {}
    if not isinstance(node, ast.FunctionDef):
        return {}
    arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
    arguments += [item for item in (node.args.vararg, node.args.kwarg) if item]
    return {item.arg: _plain(item.annotation) for item in arguments if item.annotation}


def _plain(annotation):
    return annotation.value if isinstance(annotation, ast.Constant) else ast.unparse(annotation)


def _raises(docstring):
    raises = docstring.entries.get("Raises", {})
    return ["Raises:", "\n".join(f"- `{name}`: {text}" for name, text in raises.items())] if raises else []


def _default(value):
    return "" if value is None else code(value)


def _shown(value):
    return getattr(value, "__qualname__", None) or repr(value)


def _joined(parts):
    return "\n\n".join(part for part in parts if part) + "\n"
