"""From the arguments of the SDK's classes to raysm's options, and what has no equal."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

from raysm.features.migrate.python_file import PROCESSORS, TRAININGS, NotConstant, SdkCall

OPTIONS: Mapping[str, str] = {
    "aws.role": "role",
    "aws.image": "image_uri image_name training_image",
    "aws.bucket": "bucket_name",
    "project": "project_name",
    "name": "base_job_name task_name",
    "workload.script": "entry_point entry_script code",
    "workload.source_dir": "source_dir dir_files",
    "workload.args": "arguments job_arguments",
    "cluster.instance_type": "instance_type",
    "cluster.count": "instance_count",
    "cluster.volume_gb": "volume_size volume_size_in_gb",
    "cluster.keep_alive_s": "keep_alive_period_in_seconds",
    "cluster.training_plan": "training_plan training_plan_arn",
    "limits.max_runtime_s": "max_run max_runtime_in_seconds",
    "limits.max_wait_s": "max_wait max_wait_time_in_seconds",
    "limits.spot": "use_spot_instances enable_managed_spot_training",
    "limits.retry_attempts": "max_retry_attempts",
    "resume": "keep_state",
    "output": "to",
    "hyperparameters": "hyperparameters",
    "environment": "environment env",
    "output_uri": "output_path s3_output_path prefix",
    "checkpoint_uri": "checkpoint_s3_uri s3_uri",
    "security.output_kms_key": "output_kms_key kms_key_id",
    "security.volume_kms_key": "volume_kms_key volume_kms_key_id",
    "security.subnets": "subnets",
    "security.security_groups": "security_group_ids",
    "security.encrypt_traffic": (
        "encrypt_inter_container_traffic enable_inter_container_traffic_encryption"
    ),
    "security.isolation": "enable_network_isolation",
    "security.remote_debug": "enable_remote_debug",
}
"""raysm's options, and what the SDK and ssm call them, as arguments or fields of objects."""
REASONS: Mapping[str, str] = {
    "AWS's newest PyTorch image is the default; name another one with --image": (
        "framework framework_version pytorch_version"
    ),
    "Python 3.11 or later, and that of the image": "py_version",
    "build the image, and name it with --image": (
        "repo_name aws_repo_name docker_file_path_or_content"
    ),
    "modules that the script imports are sent; --source-dir sends a folder, --wheel a package": (
        "dependencies"
    ),
    "raysm train measures the step itself; raysm scale compares sizes": (
        "rules debugger_hook_config profiler_config"
    ),
    "installed by --requirement; pin it there": "transformers_version",
    "a file in the source folder is used": "requirements",
    "clone the repository, and name the folder with --source-dir": "git_config",
    "the code is sent below the bucket: --bucket": "code_location",
    "the folder is $RAYSM_STATE": "checkpoint_local_path local_path",
    "per input: --set inputs.NAME.mode=FastFile": "input_mode",
    "--set 'cluster.groups=[…]', Cluster(groups=…) in Python": "instance_groups",
    "raysm metrics and raysm ui show the metrics": "tensorboard_output_config",
    "use torch.compile in the script": "compiler_config",
    "the files of a result are not packed": "compression_type",
    "without --on aws the job runs on this machine": "training_mode",
    "raysm jobs lists the jobs; --tag groups them": "experiment_config",
    "--input model=URI": "model_uri",
    "raysm result JOB --what state --output DIR": "download_state",
    "raysm result JOB --what data --output DIR": "download_output",
    "--output copies the result": "download_model",
    "its variables are read in the instance": "cmd_line",
    "$RAYSM_STATE is the folder of the state": "$SSM_…",
}
"""What stands in for arguments that raysm has no option for."""
NEEDLESS = (
    "script_mode sagemaker_session session wait logs job_name disable_profiler "
    "enable_sagemaker_metrics no_spot force_running clean_state command entrypoint"
).split()
OBJECTS = (
    "Compute SourceCode StoppingCondition OutputDataConfig CheckpointConfig Networking "
    "NetworkConfig S3DataSource ProcessingS3Input ProcessingS3Output"
).split()
"""Classes whose fields count as arguments of the object that has them."""
INPUT_FIELDS: Mapping[str, str] = {
    "uri": "s3_data s3_uri data_source source",
    "distribution": "distribution s3_data_distribution_type",
    "content_type": "content_type",
    "mode": "input_mode",
}
"""raysm's fields of an input, and what the SDK calls them."""
OPTION_OF, REASON_OF, FIELD_OF = (
    {name: key for key, names in table.items() for name in names.split()}
    for table in (OPTIONS, REASONS, INPUT_FIELDS)
)
SDK_DEFAULTS: tuple[Any, ...] = (None, False, [], {})
TORCHRUN: Mapping[str, str] = {
    "torch_distributed": "",
    "pytorchddp": "",
    "torchrun": "",
    "mpi": "the script reads RANK and WORLD_SIZE, as of torchrun",
    "smdistributed": "see docs/guides/come-from-smdistributed.md",
}
"""Launchers of processes for torch, with what differs here."""
OUTPUTS = ("$SM_MODEL_DIR", "$SM_OUTPUT_DATA_DIR")
PACKAGES = {"SKLearn": "scikit-learn", "HuggingFace": "transformers"}


@dataclass(kw_only=True, slots=True)
class Translation:
    title: str
    line: int
    options: dict[str, Any] = field(default_factory=lambda: {"workload.kind": "script"})
    """raysm's options by their names in ``raysm.toml``."""
    remarks: list[tuple[str, str]] = field(default_factory=list)
    """Arguments without an equal, each with a reason or a substitute."""
    impossible: str = ""

    def remark(self, argument: str, reason: str) -> None:
        self.remarks.append((argument, reason))

    @property
    def unknown(self) -> list[tuple[str, NotConstant]]:
        """The values that are not constant, by the option that they are for."""
        return [
            (name.removeprefix("workload."), value)
            for item in self.options.items()
            for name, value in not_constant(*item)
        ]


def translate(job: SdkCall) -> Translation:
    result = Translation(title=job.name, line=job.line)
    options, remark = result.options, result.remark
    if job.name in (*PROCESSORS, "ssm process"):
        options["kind"] = "processing"
    given = {name: value for name, value in _fields(job).items() if value not in SDK_DEFAULTS}
    for name, value in given.items():
        match name:
            case _ if name in OPTION_OF:
                options[OPTION_OF[name]] = value
            case "tags":
                _take_table(result, "tags", value, "Key", "Value")
            case "metric_definitions":
                _take_table(result, "metrics", value, "Name", "Regex")
            case "inputs" | "input_data_config":
                _take_inputs(result, value)
            case "outputs":
                _take_outputs(result, value)
            case "distribution" | "distributions" | "distributed":
                _take_distribution(result, value)
            case _ if name.startswith("**"):
                remark(name, f"not constant: line {value.line}")
                options.setdefault("workload.script", value)
            case _ if name not in NEEDLESS:
                remark(name, REASON_OF.get(name, "no equal in raysm"))
    _take_program(result, given)
    if "hyperparameters" in options:
        is_json = job.name not in TRAININGS or job.name == "ModelTrainer"
        options["hyperparameters_as_args"] = True if is_json else "sdk2"
    if job.name in PACKAGES:
        options["requirements"] = [PACKAGES[job.name]]
    count = options.get("cluster.count")
    is_on_head = options["workload.kind"] == "script" and "kind" not in options
    if is_on_head and isinstance(count, int) and count > 1:
        remark("instance_count", "there every instance runs the script; here the head does")
    if options.get("cluster.instance_type") in ("local", "local_gpu"):
        kind = options.pop("cluster.instance_type")
        remark("instance_type", f"{kind!r} is the default: this machine")
    if "cluster.instance_type" not in options:
        options.pop("aws.role", None)
    if str(options.get("output_uri")).startswith(("file://", "/")):
        options["output"] = _path(options.pop("output_uri"))
    task = options.get("name")
    if isinstance(task, str) and task != task_name(task):
        options["name"] = task_name(task)
        remark("name", f"{task!r}: letters, digits and hyphens")
    return result


def _take_program(result: Translation, given: Mapping[str, Any]) -> None:
    """Take a command, or the image's own program, for a job without a script."""
    options = result.options
    image = options.get("aws.image")
    # For a processor it is what runs the script.
    command = given.get("command")
    program = given.get("entrypoint") if "kind" in options else command
    if result.title not in (*TRAININGS, *PROCESSORS) and not result.title.startswith("ssm "):
        result.impossible = (
            f"{result.title} runs in an image of its own, and raysm needs Python 3.11 with Ray; "
            "a script can use the framework as a requirement"
        )
    elif "workload.script" in options:
        if "kind" in options and command not in (["python3"], ["python"], ["bash"], None):
            reason = "Python runs .py and bash runs .sh; another program stands behind --"
            result.remark("command", reason)
    elif program is not None:
        line = ["bash", "-c", program] if isinstance(program, str) else [program]
        first, *words = program if isinstance(program, list) else line
        args = options.get("workload.args", [])
        options["workload.script"] = first
        options["workload.args"] = [*words, *(args if isinstance(args, list) else [args])]
        options["workload.command"] = True
    elif "kind" in options:
        result.impossible = "it runs the image's own program: name it after --"
    elif result.title not in ("Estimator", "ModelTrainer"):
        result.impossible = "it names no script"
    elif image is None or re.search(r"retrieve\(|get_image_uri\(", str(image)):
        result.impossible = "built-in algorithms run only in SageMaker's own images"
    else:
        options |= {"workload.script": "train", "workload.command": True}
        reason = "the image's program train runs; the image needs Python 3.11"
        result.remark("entry_point", reason)


def _take_table(result: Translation, option: str, pairs: Any, key: str, value: str) -> None:
    """Take a list of tags or metrics, each an object with two fields."""
    tables = [_fields(pair) for pair in pairs] if isinstance(pairs, list) else [{}]
    if isinstance(pairs, dict):
        result.options[option] = pairs
    elif all(isinstance(table.get(key), str) for table in tables):
        result.options[option] = {table[key]: table[value] for table in tables}
    else:
        result.remark(option, "not constant")


def _take_distribution(result: Translation, value: Any) -> None:
    kinds = {value.name.lower(): value} if isinstance(value, SdkCall) else value
    if not isinstance(kinds, dict):
        result.remark("distribution", "not constant: raysm train runs scripts for torchrun")
        return
    for name, item in kinds.items():
        fields = _fields(item)
        if name in TORCHRUN:
            result.options["workload.kind"] = "torch_script"
            for key in ("processes_per_host", "process_count_per_node"):
                if key in fields:
                    result.options["workload.workers_per_instance"] = fields[key]
        if name not in TORCHRUN or TORCHRUN[name]:
            result.remark(name, TORCHRUN.get(name, "raysm has only torchrun's processes"))


def _take_inputs(result: Translation, value: Any) -> None:
    """Take the channels of ``fit``, the list of ``run`` or ``train``, or a single input."""
    if isinstance(value, dict):
        for name, item in value.items():
            _take_input(result, name, item)
        return
    is_processing = "kind" in result.options
    for item in value if isinstance(value, list) else [value]:
        fields = _fields(item)
        folder = str(fields.get("destination") or fields.get("local_path") or "")
        default = PurePosixPath(folder).name or ("input" if is_processing else "training")
        name = str(fields.get("channel_name") or fields.get("input_name") or default)
        _take_input(result, name, item)
        if is_processing and folder != f"/opt/ml/processing/input/{name}":
            result.remark(f"input {name}: destination", f"read $SM_CHANNEL_{name.upper()}")


def _take_input(result: Translation, name: str, item: Any) -> None:
    fields = _fields(item) or {"source": item}
    found = {
        FIELD_OF[key]: _path(value)
        for key, value in fields.items()
        if key in FIELD_OF and value not in ("FullyReplicated", "File", None)
    }
    if "file_system_id" in fields:
        scheme = "efs" if fields.get("file_system_type") == "EFS" else "fsx"
        path = fields.get("directory_path", "")
        found = {"uri": f"{scheme}://{fields['file_system_id']}{path}"}
    if fields.get("s3_data_type") == "ManifestFile":
        found["manifest"] = True
    if found.get("mode") == "Pipe":
        found["mode"] = "FastFile"
        result.remark(f"input {name}: input_mode", "'Pipe': FastFile streams plain files")
    result.options |= {f"inputs.{name}.{key}": value for key, value in found.items()}


def _take_outputs(result: Translation, value: Any) -> None:
    for number, item in enumerate(value if isinstance(value, list) else [value]):
        fields = _fields(item)
        uri = fields.get("destination") or fields.get("s3_uri")
        if number == 0 and uri:
            result.options["output_uri"] = uri
        place = f"write into {OUTPUTS[number]}" if number < 2 else "raysm has two outputs"
        result.remark(f"output {fields.get('output_name', number + 1)}: source", place)


def _fields(value: Any) -> dict[str, Any]:
    """Return the arguments of an object, with the fields of the objects in it."""
    arguments = value.arguments if isinstance(value, SdkCall) else value
    fields: dict[str, Any] = {}
    for name, item in arguments.items() if isinstance(arguments, dict) else ():
        if isinstance(item, SdkCall) and item.name in OBJECTS:
            fields |= _fields(item)
        else:
            # Version 1 of the SDK has train_instance_type and so on.
            fields[str(name).removeprefix("train_")] = item
    return fields


def not_constant(name: str, value: Any) -> Iterator[tuple[str, NotConstant]]:
    """Yield the values that are not constant in an option, with their names."""
    if isinstance(value, NotConstant):
        yield name, value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from not_constant(f"{name}.{key}", item)
    elif isinstance(value, list):
        for item in value:
            yield from not_constant(name, item)


def _path(uri: Any) -> Any:
    return uri.removeprefix("file://") if isinstance(uri, str) else uri


def task_name(text: str) -> str:
    """Return a name that a task of raysm can have."""
    return re.sub(r"[^a-zA-Z0-9]+", "-", text).strip("-")[:40] or "job"
