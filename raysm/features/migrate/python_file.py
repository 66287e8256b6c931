"""Find the jobs in a script of the SageMaker SDK by its syntax; the script is not run."""

import ast
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeGuard

PACKAGES = ("sagemaker", "sagemaker_core")
TRAININGS = ("Estimator", "PyTorch", "HuggingFace", "SKLearn", "ModelTrainer")
PROCESSORS = tuple(
    f"{kind}Processor" for kind in ("", "Script", "Framework", "PyTorch", "HuggingFace", "SKLearn")
)
UNSUPPORTED = ("TensorFlow", "MXNet", "Chainer", "XGBoost", "RLEstimator")
POSITIONAL: Mapping[str, tuple[str, ...]] = {
    "Estimator": ("image_uri", "role", "instance_count", "instance_type"),
    "PyTorch": ("entry_point",),
    "SKLearn": ("entry_point",),
    "TrainingInput": ("s3_data",),
    "s3_input": ("s3_data",),
    "fit": ("inputs",),
    "run": ("code", "inputs", "outputs", "arguments"),
    "train": ("input_data_config",),
}
"""The SDK's order of the arguments that scripts give without a name."""
OF_STEPS = ("code", "inputs", "outputs", "job_arguments")
"""Arguments of a pipeline's step that ``fit`` and ``run`` have too."""


@dataclass(kw_only=True, slots=True)
class NotConstant:
    """A value that only the running script would know."""

    expression: str
    line: int


@dataclass(kw_only=True, slots=True)
class SdkCall(NotConstant):
    """A call of a class of the SDK: ``TrainingInput(…)``, or a job's, ``PyTorch(…)``."""

    name: str
    arguments: dict[str, Any] = field(default_factory=dict)


def find_jobs(text: str, file: str) -> list[SdkCall]:
    """Return the jobs that a script may start, in the order of their lines.

    Raises:
        SyntaxError: The script is not Python 3.
    """
    reader = _Reader()
    reader.read(ast.parse(text, file).body, {})
    return sorted(filter(_is_job, reader.calls.values()), key=lambda job: job.line)


def _is_job(value: Any) -> TypeGuard[SdkCall]:
    return isinstance(value, SdkCall) and (
        value.name in (*TRAININGS, *UNSUPPORTED) or value.name.endswith("Processor")
    )


def _unknown(node: ast.expr) -> NotConstant:
    return NotConstant(expression=ast.unparse(node), line=node.lineno)


class _Reader:
    def __init__(self) -> None:
        self.calls: dict[ast.Call, SdkCall] = {}
        self._imported: dict[str, str] = {}
        """What the SDK calls the names that the script imports from it."""

    def read(self, body: Sequence[ast.stmt], names: dict[str, Any]) -> None:
        """Read statements; ``names`` has the values of variables and attributes so far."""
        for statement in body:
            match statement:
                case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
                    for alias in aliases:
                        path = getattr(statement, "module", None) or alias.name
                        if path.partition(".")[0] in PACKAGES:
                            name = alias.asname or alias.name.partition(".")[0]
                            self._imported[name] = alias.name
                case ast.FunctionDef(args=args) | ast.AsyncFunctionDef(args=args):
                    parameters = {
                        each.arg: NotConstant(expression=each.arg, line=each.lineno)
                        for each in ast.walk(args)
                        if isinstance(each, ast.arg)
                    }
                    inner = names | parameters
                    self.read(statement.body, inner)
                    # Another method may start the job: self.estimator.fit().
                    names |= {name: value for name, value in inner.items() if _is_job(value)}
                case ast.If() | ast.For() | ast.While() if "__name__" not in ast.unparse(statement):
                    for branch in (statement.body, statement.orelse):
                        inner = dict(names)
                        self.read(branch, inner)
                        # Which branch runs, and how often, is not known.
                        for name, value in inner.items():
                            if _is_job(value):
                                names[name] = value
                            elif name not in names or names[name] is not value:
                                names[name] = NotConstant(expression=name, line=statement.lineno)
                case ast.If() | ast.ClassDef() | ast.With() | ast.Try():
                    self.read(statement.body, names)
                case _:
                    for node in ast.walk(statement):
                        if isinstance(node, ast.Call):
                            self._read_call(node, names)
                    self._assign(statement, names)

    def _read_call(self, node: ast.Call, names: dict[str, Any]) -> None:
        call = self._value(node, names)
        if isinstance(call, SdkCall) and call.name in ("ProcessingStep", "TrainingStep"):
            job = call.arguments.get("processor") or call.arguments.get("estimator")
            if _is_job(job):
                job.arguments |= {
                    name: call.arguments[name] for name in OF_STEPS if name in call.arguments
                }
        if isinstance(node.func, ast.Attribute):
            job = self._value(node.func.value, names)
            given = self._arguments(node, node.func.attr, names)
            if _is_job(job) and node.func.attr in ("fit", "run", "train"):
                job.arguments |= given
            elif _is_job(job) and node.func.attr == "set_hyperparameters":
                table = job.arguments.get("hyperparameters") or {}
                unknown = [value for key, value in given.items() if key.startswith("**")]
                if unknown:
                    table = unknown[0]
                job.arguments["hyperparameters"] = (
                    {**table, **given} if isinstance(table, dict) else table
                )

    def _assign(self, statement: ast.stmt, names: dict[str, Any]) -> None:
        match statement:
            case ast.Assign(
                targets=[ast.Subscript(value=ast.Name(id=name), slice=ast.Constant(value=key))],
                value=value,
            ) if isinstance(names.get(name), dict):
                # A new table, by which a branch is seen to change it.
                names[name] = {**names[name], key: self._value(value, names)}
            case (
                ast.Assign(targets=[ast.Name() | ast.Attribute() as target], value=value)
                | ast.AnnAssign(target=target, value=ast.expr() as value)
            ):
                names[ast.unparse(target)] = self._value(value, names)
            case _:
                for node in ast.walk(statement):
                    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                        names[node.id] = _unknown(node)

    def _arguments(self, node: ast.Call, name: str, names: dict[str, Any]) -> dict[str, Any]:
        order = POSITIONAL.get(name, ())
        found = {
            key: self._value(value, names) for key, value in zip(order, node.args, strict=False)
        }
        for keyword in node.keywords:
            value = self._value(keyword.value, names)
            if keyword.arg is not None:
                found[keyword.arg] = value
            elif isinstance(value, dict):
                found |= value
            else:
                found[f"**{ast.unparse(keyword.value)}"] = value
        return found

    def _value(self, node: ast.expr, names: dict[str, Any]) -> Any:
        match node:
            case ast.Constant(value=value):
                return value
            case ast.Name() | ast.Attribute():
                return names.get(ast.unparse(node), _unknown(node))
            case ast.List(elts=items) | ast.Tuple(elts=items):
                return [self._value(item, names) for item in items]
            case ast.Dict(keys=keys, values=values):
                table: dict[Any, Any] = {}
                for key, item in zip(keys, values, strict=True):
                    value = self._value(item, names)
                    if isinstance(key, ast.Constant):
                        table[key.value] = value
                    elif key is None and isinstance(value, dict):
                        table |= value
                    else:
                        return _unknown(node)
                return table
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as number)):
                return -number
            case ast.BinOp(left=left, op=op, right=right):
                match self._value(left, names), op, self._value(right, names):
                    case str(first), ast.Add(), str(second):
                        return first + second
                    case int() | float() as first, ast.Mult(), int() | float() as second:
                        return first * second
            case ast.FormattedValue(value=inner, conversion=-1, format_spec=None):
                return self._value(inner, names)
            case ast.JoinedStr(values=parts):
                texts = [self._value(part, names) for part in parts]
                if all(isinstance(text, str | int | float) for text in texts):
                    return "".join(map(str, texts))
            case ast.Call(func=ast.Attribute(value=text, attr="format"), args=args, keywords=[]):
                template, *texts = [self._value(each, names) for each in (text, *args)]
                if all(isinstance(text, str | int | float) for text in (template, *texts)):
                    # Widths are not read: they could take any memory.
                    pieces = re.split(r"\{\d?\}", str(template))
                    if len(pieces) == len(texts) + 1 and "{" not in "".join(pieces):
                        return template.format(*texts)
            case ast.Call(func=ast.Name(id="dict"), args=[]):
                return self._arguments(node, "dict", names)
            case ast.Call(func=function):
                first, _, rest = ast.unparse(function).partition(".")
                name = rest.rpartition(".")[2] or self._imported.get(first, "")
                # Functions of the SDK ask AWS; its classes only hold their arguments.
                is_class = name[:1].isupper() or name == "s3_input"
                if first in self._imported and is_class:
                    if node not in self.calls:
                        self.calls[node] = SdkCall(
                            name=name,
                            line=node.lineno,
                            expression=ast.unparse(node),
                            arguments=self._arguments(node, name, names),
                        )
                    return self.calls[node]
        return _unknown(node)
