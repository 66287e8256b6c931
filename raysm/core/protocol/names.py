"""Environment variables, labels and tags that raysm defines, and how names are sorted and counted.

Only ``raysm.instance.environment`` reads the variables.
"""

import re
from collections.abc import Sequence

BASE_DIR = "SAGEMAKER_BASE_DIR"
"""Root of the SageMaker layout, as the SageMaker training toolkit names it. Default ``/opt/ml``."""
BEGAN = "RAYSM_BEGAN"
"""Start of this instance's first program, by the monotonic clock; later programs of the instance
read it."""
PORTS = "RAYSM_PORTS"
"""JSON object of ports that replace those of the request, for instances that share one address."""
KERNELS = "RAYSM_KERNELS"
"""Folder of compiled kernels, for instances that share a machine but not their temporary
folders."""
ADDRESSES = "RAYSM_ADDRESSES"
"""JSON object from host name to address, for instances whose names do not resolve."""
CPUS = "RAYSM_CPUS"
"""Number of CPUs to offer to Ray instead of the number detected."""
MAX_COST = "RAYSM_MAX_COST"
"""Set for a job with a cap: the USD that the job and its follow-ups may cost."""
MAX_COST_S = "RAYSM_MAX_COST_S"
"""Set for a job with a cap: seconds for which each instance of the job and of its follow-ups may be
billed."""
MEASURE = "RAYSM_MEASURE"
"""A user sets it to 0 so that a training does not measure its phases, for example to profile it
with another tool."""
MEMORY_BYTES = "RAYSM_MEMORY_BYTES"
"""Memory to offer to Ray instead of the limit detected."""
OBJECT_STORE_BYTES = "RAYSM_OBJECT_STORE_BYTES"
"""Size of Ray's object store instead of the size derived from ``/dev/shm``."""
PAYLOAD = "RAYSM_PAYLOAD"
"""Folder of the payload, if it is not the channel ``raysm``."""
TRAIN_STORAGE = "RAYSM_TRAIN_STORAGE"
"""S3 prefix that is the default storage of Ray Train and Ray Tune in a job on AWS with several
instances."""
# A socket's path has at most 107 bytes, of which Ray takes about 65 below its temporary folder.
RAY_TEMP_DIR = "RAYSM_RAY_TEMP_DIR"
"""Folder of Ray's sessions (short: it holds sockets). Default ``/tmp/ray``."""
SCRATCH = "RAYSM_SCRATCH"
"""Folder of an instance's temporary files; its first program chooses a folder with enough space."""
FAILURE_RECORD = "RAYSM_FAILURE_RECORD"
"""Set by the bootstrap for the driver: the file into which the driver writes its Failure."""
# The API has no field for the kind, and a real image's name does not contain it.
INSTANCE_KIND_TAG = "raysm:instance-kind"
"""Tag of a job on the embedded SageMaker: the kind of its instances."""
INSTANCE_TYPE_TAG = "raysm:instance-type"
"""Tag of a job on the embedded SageMaker whose user chose no instance type, although the API
requires one."""
LOCAL_BUCKET = "raysm-local"
"""The bucket of the embedded SageMaker, with the payloads, which follow-up jobs use again. The
bucket of a region other than LOCAL_REGION has the region's name as a suffix."""
LOCAL_REGION = "us-east-1"
"""The default region of the embedded SageMaker."""
# Jobs that raysm did not send have none of these tags.
PROJECT_TAG = "raysm:project"
"""Tag: the project of the job's task."""
TASK_TAG = "raysm:task"
"""Tag: the name of the task that the job is a run of."""
WORKLOAD_TAG = "raysm:workload"
"""Tag: the kind of the workload, which decides how the result is read."""
TRACKING_TAG = "raysm:tracking"
"""Tag: the MLflow file that the job's metrics are copied to, on the machine that sent the job."""
PYTHON_TAG = "raysm:python"
"""Tag of a job whose result is a value: the version of the Python that pickles the value or the
exception."""
# Tags, because any process that watches the job when it ends may send the follow-up job.
MAX_RESTARTS_TAG = "raysm:max-restarts"
"""Tag: the maximum number of follow-up jobs after ``max_runtime_s``."""
RESTART_TAG = "raysm:restart"
"""Tag: the number of the follow-up job, from 1."""
ROW_TAG = "raysm:row"
"""Tag of a grid's job: the row's number in its source, the grid's name and the row's key,
``7/drives/small``."""
FIRST_TAG = "raysm:first"
"""Tag: the name of the first job of a chain of follow-up jobs."""
STATE = "RAYSM_STATE"
"""Set for user code: the folder of this instance among the checkpoints, which survives the job's
restarts and re-runs with ``resume``; not set if the job has no checkpoints."""
NOT_KEPT = "not all checkpoints were kept"
"""In the log and the status message of a job whose last upload of checkpoints failed, as on a full
disk."""
VISIBLE_GPUS = "RAYSM_VISIBLE_GPUS"
"""Set if the instance has CUDA_VISIBLE_DEVICES: its value, which Ray changes for its workers."""
STOP_ON_NAN = "RAYSM_STOP_ON_NAN"
"""Set if the job ends when a metric becomes NaN or infinite: the metric's name."""
TRIAL = "RAYSM_TRIAL"
"""Set for a trial of a sweep: the trial's folder on its instance, which is removed after the
trial."""
# Ray refuses labels that begin with its own prefix, ray.io/.
LABEL_HOST = "raysm.io/host"
"""Ray label of a node: the instance's host name, ``algo-1``."""
LABEL_GROUP = "raysm.io/group"
"""Ray label of a node: its instance group."""
LABEL_INSTANCE_TYPE = "raysm.io/instance-type"
"""Ray label of a node: its instance type."""
LABEL_RANK = "raysm.io/rank"
"""Ray label of a node: 0 for the head, then the other instances in natural order."""
# SageMaker's name; https://github.com/aws/sagemaker-training-toolkit has it too.
TUNING_OBJECTIVE = "_tuning_objective_metric"
"""Hyperparameter with the objective metric, which only the training jobs of a tuning job have."""
DATA_FRAME = "raysm-data-frame"
"""Key in the metadata of a Parquet file that raysm has made of a data frame, whose user knows no
file."""
CONTROLLER_DEFINITION = "raysm-grid-controller"
"""Default name of the job definition of a grid's controller in AWS Batch."""


def natural(name: str) -> tuple[list[tuple[int, int, str]], str]:
    """Return the key that sorts names in natural order: ``part-2`` before ``part-10``."""
    pieces = re.findall(r"\d+|\D+", name)
    # The name itself comes last, so that every instance sorts part-2 and part-02 alike.
    return [(0, int(p), "") if p.isdecimal() and p.isascii() else (1, 0, p) for p in pieces], name


def counted(number: int, noun: str) -> str:
    """Return a number and its noun, which takes an s unless the number is 1."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def listed(names: Sequence[str], most: int) -> str:
    """Return the first ``most`` names, and the number of the others."""
    return ", ".join(names[:most]) + (
        f" and {len(names) - most:,} more" if len(names) > most else ""
    )
