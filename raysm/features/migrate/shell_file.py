"""Read the commands of simple-sagemaker in a shell script."""

import contextlib
import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from raysm.features.migrate.python_file import NotConstant
from raysm.features.migrate.translation import NEWEST_IMAGE, SENT, Translation, finish

NAMES: Mapping[str, str] = dict(
    pair.split("=")
    for pair in (
        "-p=project_name -t=task_name -b=bucket_name -s=source_dir -e=entry_point -d=dependencies "
        "it=instance_type ic=instance_count -v=volume_size ar=aws_repo_name rn=repo_name "
        "df=docker_file_path_or_content -f=framework fv=framework_version pv=py_version "
        "-i=input_path iis=input_s3 iit=input_task fr=force_running cs=clean_state ks=keep_state "
        "md=metric_definitions -o=output_path -m=download_model cmd=cmd_line"
    ).split()
)
"""Short forms of ssm's options."""
OPTIONS: Mapping[str, str] = {
    "project_name": "project",
    "task_name": "name",
    "prefix": "output_uri",
    "bucket_name": "aws.bucket",
    "instance_type": "cluster.instance_type",
    "instance_count": "cluster.count",
    "volume_size": "cluster.volume_gb",
    "max_wait_mins": "limits.max_wait_s",
    "max_run_mins": "limits.max_runtime_s",
}
FLAGS = (
    "no_spot use_spot_instances force_running clean_state keep_state download_state download_model "
    "download_output local_code multi_worker"
).split()
"""Options without a value."""
REASONS: Mapping[str, str] = {
    "dependencies": SENT,
    "aws_repo_name": "build and push the image (raysm image), and name it with --image",
    "repo_name": "build the image, and name it with --image",
    "image_tag": "part of --image",
    "docker_file_path_or_content": "build the image, or install packages with --requirement",
    "framework": NEWEST_IMAGE,
    "framework_version": NEWEST_IMAGE,
    "py_version": f"Python 3.11 or later; {NEWEST_IMAGE}",
    "download_state": "raysm result JOB --what state --output DIR",
    "download_output": "raysm result JOB --what data --output DIR",
    "download_model": "--output copies the result",
    "distribution": "use raysm train",
}
VALUES: Mapping[str, int] = {"input_s3": 2, "input_task": 3, "metric_definitions": 2}
"""How many values ssm's options need."""
WITHOUT_WORD = ("no_spot", "force_running", "clean_state")
"""What is raysm's default."""


def find_commands(text: str) -> list[Translation]:
    """Return the ssm commands of a shell script, in order."""
    # A continued line stays one line, with a mark for each line that it takes.
    lines = re.sub(r"\\\r?\n", "\0", text).splitlines()
    found = []
    for index, line in enumerate(lines):
        command = re.search(r"(?:^|[\s&|;`(])ssm (run|shell|process) ", line)
        if command is None or line.lstrip().startswith(("#", "echo")):
            continue
        number = index + 1 + sum(each.count("\0") for each in lines[:index])
        words: list[str] = []
        # What is in quotes may go on over several lines.
        for end in range(index + 1, len(lines) + 1):
            with contextlib.suppress(ValueError):
                words = _words("\n".join([line[command.start() :], *lines[index + 1 : end]]))
                break
        found.append(_translated(command[1], words[2:], number))
    return found


def _words(text: str) -> list[str]:
    lexer = shlex.shlex(text.strip(" &").replace("\0", " "), posix=True, punctuation_chars="")
    lexer.whitespace_split = True
    lexer.commenters = ""
    return list(lexer)


def _translated(verb: str, words: Sequence[str], line: int) -> Translation:
    result = Translation(title=f"ssm {verb}", line=line)
    result.kind = "processing" if verb == "process" else "training"
    # ssm also reads options after a -- whose next word is no argument of the script.
    own = list(words[: words.index("--")] if "--" in words else words)
    args = words[words.index("--") + 1 :] if "--" in words else ()
    result.args = [_value(word, line) for word in args]
    hyperparameters: dict[str, Any] = {}
    while own:
        flag = own.pop(0)
        if not flag.startswith("-"):
            result.remarks.append((flag, "read by the shell only"))
            continue
        name = NAMES.get(
            flag.removeprefix("--") if flag.startswith("--") else flag, flag.lstrip("-")
        )
        values = []
        while name not in FLAGS and own and not re.match(r"--?[a-zA-Z_]+$", own[0]):
            values.append(own.pop(0))
        if len(values) < VALUES.get(name, 0):
            result.remarks.append((flag, f"ssm needs {VALUES[name]} values"))
        else:
            _take(result, name, values, hyperparameters)
    if hyperparameters:
        result.options |= {"hyperparameters": hyperparameters, "hyperparameters_as_args": True}
    if not result.script:
        result.impossible = "it names no script or command"
    finish(result)
    return result


def _take(
    result: Translation, name: str, values: list[str], hyperparameters: dict[str, Any]
) -> None:
    first = values[0] if values else ""
    match name:
        case "entry_point" | "code":
            result.script = _value(first, result.line)
        case "cmd_line":
            result.script = ["bash", "-c", first.replace("\\$", "$").replace("\\`", "`")]
            result.is_command = True
            if re.search(r"(?<!\\)\$", first):
                result.remarks.append(("cmd_line", "its variables are read in the instance"))
            if "$SSM_" in first:
                result.remarks.append(("$SSM_…", "$RAYSM_STATE is the folder of the state"))
            result.source_dir = result.source_dir or "."
        case "entrypoint":
            result.script = shlex.split(first)
            result.is_command = True
        case "source_dir" | "dir_files":
            result.source_dir = _value(first, result.line)
        case "use_spot_instances":
            result.options["limits.spot"] = True
        case "keep_state":
            result.options["resume"] = True
        case "output_path":
            result.options["output"] = _value(first, result.line)
        case "input_path":
            result.inputs["data"] = _input(_value(first, result.line), values[1:])
        case "model_uri":
            result.inputs["model"] = _input(_value(first, result.line), [])
        case "input_s3":
            result.inputs[first] = _input(_value(values[1], result.line), values[2:])
        case "input_task":
            what = {"output": "data"}.get(values[2], values[2])
            result.inputs[first] = _input(
                _value(f"job:{values[1]}/{what}", result.line), values[3:]
            )
        case "metric_definitions":
            result.options.setdefault("metrics", {})[first] = values[1]
        case "tag":
            key, _, value = first.partition("=")
            result.options.setdefault("tags", {})[key] = value or " ".join(values[1:])
        case _ if name in OPTIONS:
            _take_option(result, OPTIONS[name], first)
        case _ if name in REASONS:
            result.remarks.append((name, REASONS[name]))
        case _ if name not in WITHOUT_WORD:
            hyperparameters[name] = _value(" ".join(values), result.line)


def _take_option(result: Translation, option: str, text: str) -> None:
    if option == "cluster.instance_type" and text == "local":
        return
    is_number = option.startswith(("limits.", "cluster.")) and option != "cluster.instance_type"
    if is_number and not text.isdecimal():
        result.options[option] = NotConstant(expression=text, line=result.line)
    else:
        factor = 60 if option.startswith("limits.") else 1
        value = _value(text, result.line)
        result.options[option] = int(text) * factor if is_number else value


def _value(text: str, line: int) -> Any:
    return NotConstant(expression=text, line=line) if "$" in text else text


def _input(uri: Any, more: Sequence[str]) -> dict[str, Any]:
    shared = [each for each in more if each == "ShardedByS3Key"]
    return {"uri": uri, **({"distribution": shared[0]} if shared else {})}
