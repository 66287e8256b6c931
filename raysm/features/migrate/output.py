"""Print a translated job as a command and in Python."""

import json
import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from raysm.cli.options import COMMON, METRIC, SOURCE, TARGET
from raysm.core.client.settings import nested
from raysm.features.migrate.python_file import NotConstant
from raysm.features.migrate.translation import Translation, task_name

FLAGS: Mapping[str, str] = {
    **{flag.path: flag.name for flag in (*COMMON, *SOURCE, METRIC)},
    **{flag.path.replace("target.", "aws."): flag.name for flag in TARGET},
    "workload.workers_per_instance": "--workers-per-instance",
    "output": "--output",
}
CLASSES: Mapping[str, str] = {
    "script": "raysm.Script",
    "torch_script": "raysm.TorchScript",
    "cluster": "raysm.Cluster",
    "limits": "raysm.Limits",
    "security": "raysm.Security",
}
SWITCHES = (
    "limits.spot",
    "security.isolation",
    "security.encrypt_traffic",
    "security.remote_debug",
    "hyperparameters_as_args",
)
"""Options whose flags take no value."""
ROLE = "arn:aws:iam::123456789012:role/ROLE"


def command_lines(job: Translation) -> list[str]:
    """Return the words of the command, an option on each line."""
    options = dict(job.options)
    verb = "train" if options.pop("workload.kind") == "torch_script" else "run"
    script = _word("script", options.pop("workload.script"))
    args = options.pop("workload.args", [])
    words = [_word("args", each) for each in (args if isinstance(args, list) else [args])]
    if options.pop("workload.command", False):
        lines = [f"raysm {verb}"]
        words = [script, *words]
    else:
        lines = [f"raysm {verb} {script}"]
    if "cluster.instance_type" in options:
        lines.append("--on aws")
        if "aws.role" not in options:
            lines.append('--role "$ROLE"')
    for option, value in options.items():
        lines += _option_lines(option, value)
    return [*lines, "-- " + " ".join(words)] if words else lines


def _option_lines(option: str, value: Any) -> Iterator[str]:
    name = option.removesuffix(".uri").rpartition(".")[2]
    if option.startswith("inputs.") and option.endswith(".uri"):
        yield f"--input {name}={_word(name, value)}"
    elif option not in FLAGS or option in SWITCHES and value is not True:
        yield f"--set {option}={_word(name, value)}"
    elif value is True:
        yield FLAGS[option]
    elif isinstance(value, dict):
        for key, item in value.items():
            text = item if isinstance(item, str | NotConstant) else json.dumps(item, default=repr)
            yield f"{FLAGS[option]} {shlex.quote(str(key))}={_word(str(key), text)}"
    else:
        for item in value if isinstance(value, list) else [value]:
            yield f"{FLAGS[option]} {_word(name, item)}"


def _word(name: str, value: Any) -> str:
    if not isinstance(value, NotConstant):
        return shlex.quote(str(value))
    # A variable of a shell script stays one.
    if "$" in value.expression:
        return f'"{value.expression}"'
    return f'"${task_name(name).upper().replace("-", "_")}"'


def python_lines(job: Translation) -> list[str]:
    """Return a call of ``raysm.submit``; values that are not constant keep their expressions."""
    tables = nested({tuple(name.split(".")): value for name, value in job.options.items()})
    workload = tables.pop("workload")
    target = tables.pop("aws", {})
    output = tables.pop("output", None)
    kind = CLASSES[workload.pop("kind")]
    lines = [
        "job = raysm.submit(",
        f"    {_call(kind, {'script': workload.pop('script'), **workload})},",
    ]
    for name, value in tables.items():
        if name in CLASSES:
            code = _call(CLASSES[name], value)
        elif name == "inputs":
            inputs = [f"{key!r}: {_call('raysm.Input', fields)}" for key, fields in value.items()]
            code = f"{{{', '.join(inputs)}}}"
        elif name == "metrics":
            pairs = [f"{_code(key)}, {_code(regex)}" for key, regex in value.items()]
            code = f"[{', '.join(f'raysm.MetricDefinition({pair})' for pair in pairs)}]"
        else:
            code = _code(value)
        lines.append(f"    {name}={code},")
    if "cluster.instance_type" in job.options:
        lines.append(f"    on={_call('raysm.AWS', {'role': ROLE, **target})},")
    result = "job.result()" if output is None else f"job.result(to={_code(output)})"
    return [*lines, ")", "job.logs(follow=True)", result]


def _call(name: str, fields: Mapping[str, Any]) -> str:
    return f"{name}({', '.join(f'{key}={_code(value)}' for key, value in fields.items())})"


def _code(value: Any) -> str:
    if isinstance(value, NotConstant):
        is_of_shell = "$" in value.expression
        return f"os.path.expandvars({value.expression!r})" if is_of_shell else value.expression
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key!r}: {_code(item)}" for key, item in value.items()) + "}"
    return f"[{', '.join(map(_code, value))}]" if isinstance(value, list) else repr(value)
