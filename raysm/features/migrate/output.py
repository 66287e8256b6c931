"""Print a translated job: as a command, in Python, and its API call beside that of the SDK."""

import json
import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from raysm.cli.options import COMMON, METRIC, SOURCE, TARGET
from raysm.core.client.images import with_image
from raysm.core.client.plan import plan
from raysm.core.client.storage.places import Places
from raysm.core.request import AWS, Cluster, Input, JobRequest, Limits, MetricDefinition, Security
from raysm.core.request.workload import Workload
from raysm.features.migrate.python_file import NotConstant
from raysm.features.migrate.translation import Translation, task_name

FLAGS = {
    flag.path.replace("target.", "aws."): flag.name for flag in (*COMMON, *SOURCE, METRIC, *TARGET)
}
PARTS = {"cluster": "raysm.Cluster", "limits": "raysm.Limits", "security": "raysm.Security"}
SWITCHES = (
    "limits.spot",
    "security.isolation",
    "security.encrypt_traffic",
    "security.remote_debug",
)
"""Options whose flags take no value."""
ROLE = "arn:aws:iam::123456789012:role/ROLE"


def command_lines(job: Translation) -> list[str]:
    """Return the words of the command, an option on each line."""
    verb = "train" if job.workload == "TorchScript" else "run"
    lines = [f"raysm {verb}" if job.is_command else f"raysm {verb} {_word('script', job.script)}"]
    if job.source_dir is not None:
        lines.append(f"--source-dir {_word('source_dir', job.source_dir)}")
    if job.workers is not None:
        lines.append(f"--workers-per-instance {_word('workers', job.workers)}")
    if job.kind != "training":
        lines.append(f"--kind {job.kind}")
    for channel, fields in job.inputs.items():
        for name, value in fields.items():
            word = _word(channel, value)
            lines.append(
                f"--input {channel}={word}"
                if name == "uri"
                else f"--set inputs.{channel}.{name}={word}"
            )
    if _is_on_aws(job):
        lines.append("--on aws")
        if "aws.role" not in job.options:
            lines.append('--role "$ROLE"')
    for option, value in job.options.items():
        lines += _option_lines(option, value)
    words = [
        *(job.script if job.is_command else ()),
        *(job.args if isinstance(job.args, list) else ()),
    ]
    if not isinstance(job.args, list):
        words.append(job.args)
    if words:
        lines.append("-- " + " ".join(_word("args", word) for word in words))
    return lines


def _is_on_aws(job: Translation) -> bool:
    return "cluster.instance_type" in job.options


def _option_lines(option: str, value: Any) -> Iterator[str]:
    flag = FLAGS.get(option, f"--{option}" if option in ("output", "resume") else None)
    name = option.rpartition(".")[2]
    if option == "hyperparameters_as_args" and value != True:  # noqa: E712
        yield f"--set {option}={value}"
    elif flag is None or option in SWITCHES and isinstance(value, NotConstant):
        yield f"--set {option}={_word(name, value)}"
    elif value is True:
        yield flag
    elif isinstance(value, Mapping):
        for key, item in value.items():
            text = item if isinstance(item, str | NotConstant) else json.dumps(item, default=repr)
            yield f"{flag} {shlex.quote(str(key))}={_word(str(key), text)}"
    elif isinstance(value, list):
        for item in value:
            yield f"{flag} {_word(name, item)}"
    else:
        yield f"{flag} {_word(name, value)}"


def _word(name: str, value: Any) -> str:
    if isinstance(value, NotConstant):
        # A variable of a shell script stays one.
        if "$" in value.expression:
            return f'"{value.expression}"'
        return f'"${task_name(name).upper().replace("-", "_")}"'
    return shlex.quote(str(value))


def python_lines(job: Translation) -> list[str]:
    """Return a call of ``raysm.submit``; values that are not constant keep their expressions."""
    words = list(job.script) if job.is_command else [job.script]
    args = [*words[1:], *job.args] if isinstance(job.args, list) else job.args
    given = {"args": args or None, "source_dir": job.source_dir, "command": job.is_command or None}
    given["workers_per_instance"] = job.workers
    named = "".join(f", {key}={_code(value)}" for key, value in given.items() if value is not None)
    lines = ["job = raysm.submit(", f"    raysm.{job.workload}({_code(words[0])}{named}),"]
    for part, name in PARTS.items():
        fields = {
            key.removeprefix(f"{part}."): value
            for key, value in job.options.items()
            if key.startswith(f"{part}.")
        }
        if fields:
            lines.append(f"    {part}={_call(name, fields)},")
    if job.inputs:
        inputs = {
            channel: _code(fields["uri"])
            if set(fields) == {"uri"}
            else _call("raysm.Input", fields)
            for channel, fields in job.inputs.items()
        }
        lines.append(
            f"    inputs={{{', '.join(f'{key!r}: {code}' for key, code in inputs.items())}}},"
        )
    if job.kind != "training":
        lines.append(f"    kind={job.kind!r},")
    for option, value in job.options.items():
        if option == "metrics":
            metrics = ", ".join(
                f"raysm.MetricDefinition({_code(n)}, {_code(r)})" for n, r in value.items()
            )
            lines.append(f"    metrics=[{metrics}],")
        elif "." not in option and option != "output":
            lines.append(f"    {option}={_code(value)},")
    if _is_on_aws(job):
        fields = {key[4:]: value for key, value in job.options.items() if key.startswith("aws.")}
        lines.append(f"    on={_call('raysm.AWS', {'role': ROLE, **fields})},")
    output = f"to={_code(job.options['output'])}" if "output" in job.options else ""
    return [*lines, ")", "job.logs(follow=True)", f"job.result({output})"]


def _call(name: str, fields: Mapping[str, Any]) -> str:
    return f"{name}({', '.join(f'{key}={_code(value)}' for key, value in fields.items())})"


def _code(value: Any) -> str:
    if isinstance(value, NotConstant):
        is_of_shell = "$" in value.expression
        return f"os.path.expandvars({value.expression!r})" if is_of_shell else value.expression
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key!r}: {_code(item)}" for key, item in value.items()) + "}"
    return f"[{', '.join(map(_code, value))}]" if isinstance(value, list) else repr(value)


def api_differences(job: Translation) -> tuple[str, list[tuple[str, str, str]]]:
    """Return the API, and each field that differs: its path, the SDK's value and raysm's.

    Values that are not constant are left out on both sides.
    """
    planned = plan(
        _request(job),
        target=_target(job),
        places=Places(bucket="BUCKET", root="s3://BUCKET/raysm", data="s3://BUCKET/raysm"),
    )
    ours = dict(_flat("", planned.request))
    theirs = _sdk_call(job, ours)
    for option, path in FIELDS.items():
        if isinstance(job.options.get(option), NotConstant):
            ours.pop(path, None)
            theirs.pop(path, None)
    differing = [
        (path, theirs.get(path, "-"), ours.get(path, "-"))
        for path in dict.fromkeys([*theirs, *ours])
        if theirs.get(path) != ours.get(path)
    ]
    return planned.api.create, differing


def _constant(options: Mapping[str, Any]) -> dict[str, Any]:
    def is_constant(value: Any) -> bool:
        parts = value.values() if isinstance(value, Mapping) else value
        if isinstance(value, Mapping | list):
            return all(map(is_constant, parts))
        return not isinstance(value, NotConstant)

    return {name: value for name, value in options.items() if is_constant(value)}


def _request(job: Translation) -> JobRequest:
    options = _constant(job.options)
    fields: dict[str, Any] = {}
    for part, kind in (("cluster", Cluster), ("limits", Limits), ("security", Security)):
        values = {
            key.partition(".")[2]: tuple(value) if isinstance(value, list) else value
            for key, value in options.items()
            if key.startswith(f"{part}.")
        }
        fields[part] = kind(
            **{"instance_type": "ml.m5.large"} | values if part == "cluster" else values
        )
    workload: Any = Workload.named(
        "torch_script" if job.workload == "TorchScript" else "script", ""
    )
    script = job.script if isinstance(job.script, str) else "train.py"
    for name in ("environment", "hyperparameters", "tags", "output_uri", "checkpoint_uri"):
        if name in options:
            fields[name] = options[name]
    fields["metrics"] = tuple(
        MetricDefinition(*pair) for pair in options.get("metrics", {}).items()
    )
    return JobRequest(
        name=task_name(str(options.get("name", "job"))),
        workload=workload(script),
        kind="processing" if job.kind == "processing" else "training",
        inputs={
            name: Input(**values)
            if str(values.get("uri")).startswith("s3://") and _constant(values) == values
            else Input(f"s3://BUCKET/raysm/inputs/{name}")
            for name, values in job.inputs.items()
        },
        **fields,
    )


def _target(job: Translation) -> AWS:
    options = _constant(job.options)
    target = AWS(role=str(options.get("aws.role", ROLE)), image=options.get("aws.image"))
    return with_image(target, _request(job), lambda: "us-east-1")[0]


FIELDS = {
    "aws.image": "AlgorithmSpecification.TrainingImage",
    "output_uri": "OutputDataConfig.S3OutputPath",
    "checkpoint_uri": "CheckpointConfig.S3Uri",
}
"""Fields for which raysm has a default, so that it does not leave them out."""
OWN = (
    "AlgorithmSpecification.Container AlgorithmSpecification.EnableSageMaker "
    "AppSpecification.Container InputDataConfig[raysm] ProcessingInputs[raysm] "
    "RemoteDebugConfig TrainingJobName ProcessingJobName ProcessingOutputConfig "
    "Environment.RAYSM"
).split()
"""Beginnings of fields that only raysm's call has, or whose values the SDK chooses itself."""


def _sdk_call(job: Translation, ours: Mapping[str, str]) -> dict[str, str]:
    """Return the fields of the SDK's call: those that raysm takes over, and its own."""
    theirs = {path: value for path, value in ours.items() if not path.startswith(tuple(OWN))}
    options = _constant(job.options)
    image = "TrainingImage" if job.kind == "training" else "ImageUri"
    path = next((path for path in theirs if path.endswith(image)), image)
    if "aws.image" not in options:
        theirs[path] = f"the image of {job.title}"
    if job.kind == "processing":
        theirs["ProcessingInputs[code]"] = f"s3://…/{job.script}"
        theirs["AppSpecification.ContainerEntrypoint"] = (
            f"python3 /opt/ml/processing/input/code/{job.script}"
        )
        return theirs
    if "output_uri" not in options:
        theirs["OutputDataConfig.S3OutputPath"] = "s3://sagemaker-REGION-ACCOUNT/"
    theirs["OutputDataConfig.CompressionType"] = "GZIP"
    if "checkpoint_uri" not in options:
        theirs.pop("CheckpointConfig.S3Uri", None)
    if job.title == "ModelTrainer":
        if "limits.max_runtime_s" not in options:
            theirs["StoppingCondition.MaxRuntimeInSeconds"] = "3600"
        theirs["InputDataConfig[code]"] = "the source folder"
        theirs["InputDataConfig[sm_drivers]"] = "the SDK's launcher"
        theirs["AlgorithmSpecification.ContainerEntrypoint"] = "/bin/bash …/sm_train.sh"
    else:
        if job.title != "Estimator":
            for name, value in options.get("hyperparameters", {}).items():
                theirs[f"HyperParameters.{name}"] = json.dumps(value)
        theirs["HyperParameters.sagemaker_program"] = str(job.script)
        theirs["HyperParameters.sagemaker_submit_directory"] = "s3://…/sourcedir.tar.gz"
    return theirs


def _flat(path: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _flat(f"{path}.{key}".lstrip("."), item)
    elif isinstance(value, list) and value and isinstance(value[0], Mapping):
        for item in value:
            name = next(iter(item.values()))
            uri = [text for key, text in _flat("", item) if key.endswith("S3Uri")]
            shown = uri[0] if uri else json.dumps(item)
            yield f"{path}[{name}]", shown
    elif value is not None and value != []:
        yield path, " ".join(map(str, value)) if isinstance(value, list) else str(value)
