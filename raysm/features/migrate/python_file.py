"""Find the jobs in a script of the SageMaker SDK by its syntax; nothing of it is run."""

import ast
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

TRAININGS = ("Estimator", "PyTorch", "HuggingFace", "SKLearn", "ModelTrainer")
PROCESSORS = (
    "Processor",
    "ScriptProcessor",
    "FrameworkProcessor",
    "PyTorchProcessor",
    "HuggingFaceProcessor",
    "SKLearnProcessor",
)
UNSUPPORTED = ("TensorFlow", "MXNet", "Chainer", "XGBoost", "RLEstimator", "PySparkProcessor")
UNSUPPORTED_TOO = ("TensorFlowProcessor", "XGBoostProcessor", "MXNetProcessor", "SparkJarProcessor")
CLASSES = (*TRAININGS, *PROCESSORS, *UNSUPPORTED, *UNSUPPORTED_TOO)
STEPS = ("ProcessingStep", "TrainingStep")
NUMBER = int | float
STARTS = ("fit", "run", "train")
OPERATORS: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
POSITIONAL: Mapping[str, tuple[str, ...]] = {
    "Estimator": ("image_uri", "role", "instance_count", "instance_type"),
    "PyTorch": ("entry_point", "framework_version", "py_version", "source_dir", "hyperparameters"),
    "HuggingFace": ("py_version", "entry_point"),
    "SKLearn": ("entry_point", "framework_version"),
    "ScriptProcessor": ("role", "image_uri", "command", "instance_count", "instance_type"),
    "SKLearnProcessor": ("framework_version", "role", "instance_type", "instance_count"),
    "Processor": ("role", "image_uri", "instance_count", "instance_type", "entrypoint"),
    "TrainingInput": ("s3_data", "distribution"),
    "s3_input": ("s3_data", "distribution"),
    "ProcessingInput": ("source", "destination", "input_name"),
    "ProcessingOutput": ("source", "destination", "output_name"),
    "fit": ("inputs", "wait", "logs", "job_name"),
    "run": ("code", "inputs", "outputs", "arguments"),
    "train": ("input_data_config", "wait", "logs"),
}
"""The SDK's order of arguments without a name."""
OLD_NAMES = {
    "train_instance_count": "instance_count",
    "train_instance_type": "instance_type",
    "train_volume_size": "volume_size",
    "train_max_run": "max_run",
    "train_max_wait": "max_wait",
    "train_use_spot_instances": "use_spot_instances",
    "image_name": "image_uri",
    "script": "entry_point",
}
"""Names of version 1 of the SDK, and what version 2 calls them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class NotConstant:
    """A value that only the running script would know."""

    expression: str
    line: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Record:
    """An object of the SDK that is an argument: ``TrainingInput(…)``, ``Compute(…)``."""

    name: str
    arguments: Mapping[str, Any]


@dataclass(kw_only=True, slots=True)
class FoundJob:
    name: str
    line: int
    arguments: dict[str, Any] = field(default_factory=dict)
    is_started: bool = False
    unknown: list[NotConstant] = field(default_factory=list)
    """``**options`` that are not constant."""


def find_jobs(text: str, file: str) -> list[FoundJob]:
    """Return the jobs that a script may start, in the order of their lines.

    Raises:
        SyntaxError: The script is not Python 3.
    """
    reader = _Reader()
    reader.read(ast.parse(text, file).body, {})
    return sorted(reader.jobs.values(), key=lambda job: job.line)


class _Reader:
    def __init__(self) -> None:
        self.jobs: dict[int, FoundJob] = {}
        """By the node of the constructor."""
        self._by_name: dict[str, FoundJob] = {}
        self._imported: dict[str, str] = {}

    def read(self, body: list[ast.stmt], names: dict[str, Any]) -> None:
        for statement in body:
            match statement:
                case ast.Import(names=aliases):
                    for alias in aliases:
                        self._imported[alias.asname or alias.name.partition(".")[0]] = (
                            alias.name if alias.asname else alias.name.partition(".")[0]
                        )
                case ast.ImportFrom(module=str(module), names=aliases):
                    for alias in aliases:
                        self._imported[alias.asname or alias.name] = f"{module}.{alias.name}"
                case ast.FunctionDef() | ast.AsyncFunctionDef():
                    arguments = statement.args
                    given = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
                    unknown = {
                        each.arg: NotConstant(expression=each.arg, line=each.lineno)
                        for each in given
                    }
                    self.read(statement.body, {**names, **unknown})
                case ast.ClassDef() | ast.With() | ast.Try():
                    self.read(statement.body, names)
                case ast.If() | ast.For() | ast.While():
                    self._read_branches(statement, names)
                case _:
                    self._read_calls(statement, names)
                    self._assign(statement, names)

    def _read_branches(
        self, statement: ast.If | ast.For | ast.While, names: dict[str, Any]
    ) -> None:
        if isinstance(statement, ast.If) and "__name__" in ast.unparse(statement.test):
            self.read(statement.body, names)
            return
        for body in (statement.body, statement.orelse):
            inner = dict(names)
            self.read(body, inner)
            # Which branch runs, and how often, is not known.
            for name, value in inner.items():
                if name not in names or names[name] is not value:
                    names[name] = NotConstant(expression=name, line=statement.lineno)

    def _assign(self, statement: ast.stmt, names: dict[str, Any]) -> None:
        if isinstance(statement, ast.AugAssign):
            key = ast.unparse(statement.target)
            names[key] = NotConstant(expression=key, line=statement.lineno)
        if not isinstance(statement, ast.Assign | ast.AnnAssign) or statement.value is None:
            return
        value = statement.value
        for target in (
            statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        ):
            key = ast.unparse(target)
            if id(value) in self.jobs:
                self._by_name[key] = self.jobs[id(value)]
            match target:
                case ast.Tuple(elts=parts):
                    for part in parts:
                        name = ast.unparse(part)
                        names[name] = NotConstant(expression=name, line=statement.lineno)
                case ast.Subscript(value=table, slice=ast.Constant(value=name)):
                    known = names.get(ast.unparse(table))
                    if isinstance(known, dict):
                        # A new one, by which a branch is seen to change it.
                        names[ast.unparse(table)] = {**known, name: self._value(value, names)}
                case _:
                    names[key] = self._value(value, names)

    def _read_calls(self, statement: ast.stmt, names: dict[str, Any]) -> None:
        for node in ast.walk(statement):
            if isinstance(node, ast.Call):
                self._job(node, names)
        for node in ast.walk(statement):
            if isinstance(node, ast.Call) and self._sdk_name(node.func) in STEPS:
                self._read_step(node, names)
            match node:
                case ast.Call(func=ast.Attribute(value=owner, attr=method)):
                    job = self.jobs.get(id(owner)) or self._by_name.get(ast.unparse(owner))
                    if job is None:
                        continue
                    if method == "set_hyperparameters":
                        given = job.arguments.setdefault("hyperparameters", {})
                        if isinstance(given, dict):
                            given |= self._arguments(node, method, names, job)
                    elif method in STARTS:
                        job.is_started = True
                        job.arguments |= self._arguments(node, method, names, job)

    def _read_step(self, node: ast.Call, names: dict[str, Any]) -> None:
        """Read a step of a pipeline, which has the arguments of ``fit`` or ``run``."""
        given = self._arguments(node, "", names, None)
        owners = [each.value for each in node.keywords if each.arg in ("processor", "estimator")]
        for owner in owners:
            job = self.jobs.get(id(owner)) or self._by_name.get(ast.unparse(owner))
            if job is not None:
                job.is_started = True
                given["arguments"] = given.get("job_arguments")
                job.arguments |= {
                    name: given[name]
                    for name in ("code", "inputs", "outputs", "arguments")
                    if given.get(name) is not None
                }

    def _job(self, node: ast.Call, names: dict[str, Any]) -> None:
        name = self._sdk_name(node.func)
        if name in CLASSES and id(node) not in self.jobs:
            job = FoundJob(name=name, line=node.lineno)
            job.arguments = self._arguments(node, name, names, job)
            self.jobs[id(node)] = job

    def _sdk_name(self, function: ast.expr) -> str:
        """Return the name of a class of the SDK; empty for other calls."""
        first, _, rest = ast.unparse(function).partition(".")
        path = self._imported.get(first, "")
        is_sdk = path.partition(".")[0] in ("sagemaker", "sagemaker_core")
        return f"{path}.{rest}".rstrip(".").rpartition(".")[2] if is_sdk else ""

    def _arguments(
        self, node: ast.Call, name: str, names: dict[str, Any], job: FoundJob | None
    ) -> dict[str, Any]:
        order = POSITIONAL.get(name, ())
        found = {
            key: self._value(value, names) for key, value in zip(order, node.args, strict=False)
        }
        for keyword in node.keywords:
            value = self._value(keyword.value, names)
            if keyword.arg is not None:
                found[OLD_NAMES.get(keyword.arg, keyword.arg)] = value
            elif isinstance(value, dict):
                found |= {OLD_NAMES.get(str(key), str(key)): item for key, item in value.items()}
            elif job is not None:
                job.unknown.append(
                    NotConstant(expression=f"**{ast.unparse(keyword.value)}", line=node.lineno)
                )
        return found

    def _value(self, node: ast.expr, names: dict[str, Any]) -> Any:
        unknown = NotConstant(expression=ast.unparse(node), line=node.lineno)
        match node:
            case ast.Constant(value=value):
                return value
            case ast.Name() | ast.Attribute():
                return names.get(ast.unparse(node), unknown)
            case ast.List(elts=items) | ast.Tuple(elts=items):
                return [self._value(item, names) for item in items]
            case ast.Dict(keys=keys, values=values):
                table: dict[Any, Any] = {}
                for key, item in zip(keys, values, strict=True):
                    value = self._value(item, names)
                    name = None if key is None else self._value(key, names)
                    if isinstance(name, NotConstant | list | dict) or (
                        key is None and not isinstance(value, dict)
                    ):
                        return unknown
                    table |= value if key is None else {name: value}
                return table
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                value = self._value(operand, names)
                return -value if isinstance(value, NUMBER) else unknown
            case ast.BinOp(left=left, op=op, right=right):
                pair = (self._value(left, names), self._value(right, names))
                if type(op) not in OPERATORS or any(isinstance(each, NotConstant) for each in pair):
                    return unknown
                # "x" * 10**12 must not be made.
                if isinstance(op, ast.Mult) and not all(isinstance(each, NUMBER) for each in pair):
                    return unknown
                try:
                    return OPERATORS[type(op)](*pair)
                except (TypeError, ValueError, ZeroDivisionError):
                    return unknown
            case ast.JoinedStr(values=parts):
                texts = [
                    self._value(part.value if isinstance(part, ast.FormattedValue) else part, names)
                    for part in parts
                ]
                is_known = not any(isinstance(text, NotConstant | Record) for text in texts)
                return "".join(map(str, texts)) if is_known else unknown
            case ast.Call(func=ast.Attribute(value=text, attr="format"), args=args, keywords=[]):
                parts = [self._value(each, names) for each in (text, *args)]
                if not all(isinstance(each, str | NUMBER) for each in parts):
                    return unknown
                try:
                    return str(parts[0]).format(*parts[1:])
                except (LookupError, ValueError, AttributeError):
                    return unknown
            case ast.Call(func=ast.Name(id="dict"), args=[]):
                return self._arguments(node, "dict", names, None)
            case ast.Call(func=function):
                name = self._sdk_name(function)
                # Functions of the SDK ask AWS; its classes only hold their arguments.
                if not name[:1].isupper() and name != "s3_input":
                    return unknown
                return Record(name=name, arguments=self._arguments(node, name, names, None))
            case _:
                return unknown
