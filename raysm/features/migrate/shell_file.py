"""Read the commands of simple-sagemaker in a shell script."""

import itertools
import re
import shlex
from collections.abc import Sequence
from typing import Any

from raysm.errors import InvalidRequest
from raysm.features.migrate.python_file import NotConstant, SdkCall
from raysm.features.migrate.translation import NEEDLESS, OPTION_OF, REASON_OF

SHORT = dict(
    pair.split("=")
    for pair in (
        "-p=project_name -t=task_name -b=bucket_name -s=source_dir -e=entry_point -d=dependencies "
        "--it=instance_type --ic=instance_count -v=volume_size -i=input_path --iis=input_s3 "
        "--iit=input_task --md=metric_definitions -o=output_path --fr=force_running "
        "--cs=clean_state --ks=keep_state -m=download_model -f=framework --fv=framework_version "
        "--pv=py_version --ar=aws_repo_name --rn=repo_name --df=docker_file_path_or_content"
    ).split()
)
"""Short forms of ssm's options."""


def find_commands(text: str) -> list[SdkCall]:
    """Return the ssm commands of a shell script as jobs of the SDK, in order.

    Raises:
        InvalidRequest: An option of a command lacks a value.
    """
    found = []
    for start in re.finditer(r"(?m)^(?!\s*(?:#|echo\b)).*?(?<!\S)ssm (run|shell|process) ", text):
        # Without continued lines, and without comments in back quotes.
        command = re.sub(r"\\\r?\n|`#[^`]*`", " ", text[start.end() :])
        lexer = shlex.shlex(command, posix=True, punctuation_chars="&|;>\n")
        lexer.whitespace = " \t"
        lexer.whitespace_split = True
        lexer.commenters = ""
        words = list(itertools.takewhile(lambda word: word.strip("&|;>\n"), lexer))
        line = text.count("\n", 0, start.end()) + 1
        job = SdkCall(name=f"ssm {start[1]}", line=line, expression="ssm")
        own = list(itertools.takewhile(lambda word: word != "--", words))
        job.arguments["arguments"] = [_value(word, job) for word in words[len(own) + 1 :]]
        # Each option with its values.
        for flag, *values in _groups(own):
            try:
                _take(job, SHORT.get(flag, flag.lstrip("-")), values)
            except ValueError as error:
                raise InvalidRequest(f"line {job.line}: {flag} of ssm lacks a value") from error
        found.append(job)
    return found


def _groups(words: Sequence[str]) -> list[list[str]]:
    groups: list[list[str]] = []
    for word in words:
        if re.match(r"--?[a-zA-Z]", word) or not groups:
            groups.append([])
        groups[-1].append(word)
    return groups


def _take(job: SdkCall, name: str, values: list[str]) -> None:
    """Add an option to the arguments of a job, under the name that the SDK has for it."""
    given = job.arguments
    first = _value(values[0], job) if values else True
    inputs = given.setdefault("inputs", {})
    match name:
        case "max_run_mins" | "max_wait_mins":
            minutes = _number(first)
            seconds = minutes * 60 if isinstance(minutes, int) else minutes
            given[name.removesuffix("_mins")] = seconds
        case "instance_count" | "volume_size":
            given[name] = _number(first)
        case "cmd_line":
            (text,) = values
            plain = text.replace("\\$", "$").replace("\\`", "`")
            given |= {"command": ["bash", "-c", plain], "$SSM_…": "$SSM_" in plain}
            given["cmd_line"] = re.search(r"(?<!\\)\$", text) is not None
            given.setdefault("dir_files", ".")
        case "command" | "entrypoint":
            given[name] = shlex.split(" ".join(values))
        case "output_path":
            given["to"] = first
        case "input_path":
            uri, *more = values
            inputs["data"] = _channel(job, uri, more)
        case "input_s3":
            channel, uri, *more = values
            inputs[channel] = _channel(job, uri, more)
        case "input_task":
            channel, task, output, *more = values
            uri = f"job:{task}/{'data' if output == 'output' else output}"
            inputs[channel] = _channel(job, uri, more)
        case "metric_definitions":
            metric, regex = values
            given.setdefault(name, []).append({"Name": metric, "Regex": regex})
        case "tag":
            key, tag = values if len(values) > 1 else values[0].split("=")
            given.setdefault("tags", {})[key] = tag
        case _ if name in (*OPTION_OF, *REASON_OF, *NEEDLESS, "distribution"):
            given[name] = first
        case _:
            given.setdefault("hyperparameters", {})[name] = first


def _channel(job: SdkCall, uri: str, more: Sequence[str]) -> SdkCall:
    fields = {"s3_data": _value(uri, job)}
    if "ShardedByS3Key" in more:
        fields["distribution"] = "ShardedByS3Key"
    return SdkCall(name="TrainingInput", line=job.line, expression=uri, arguments=fields)


def _value(text: str, job: SdkCall) -> str | NotConstant:
    return NotConstant(expression=text, line=job.line) if "$" in text else text


def _number(value: Any) -> Any:
    return int(value) if isinstance(value, str) and value.isdecimal() else value
