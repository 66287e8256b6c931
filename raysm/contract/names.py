"""Environment variables, labels and tags that raysm defines; those of SageMaker, Ray and PyTorch keep their names.

Only ``raysm.bootstrap.environment`` reads the variables. Here too: how names are sorted and counted.
"""

import re

BASE_DIR = "SAGEMAKER_BASE_DIR"
"""Root of the SageMaker layout; the SageMaker training toolkit's name for it. Default ``/opt/ml``."""

BEGAN = "RAYSM_BEGAN"
"""Start of this instance's first program, in seconds since the epoch, for the programs that it becomes."""

PORTS = "RAYSM_PORTS"
"""JSON object of ports that replace those of the request, for instances that share one address."""

KERNELS = "RAYSM_KERNELS"
"""Folder of compiled kernels, for instances that share a machine and have temporary folders of their own."""

ADDRESSES = "RAYSM_ADDRESSES"
"""JSON object from host name to address, for instances whose names no resolver knows."""

CPUS = "RAYSM_CPUS"
"""Number of CPUs to offer to Ray instead of the number detected."""

MEASURE = "RAYSM_MEASURE"
"""Set to 0 by a user: a training does not measure where its time goes. For who profiles it with tools of his own."""

MEMORY_BYTES = "RAYSM_MEMORY_BYTES"
"""Memory to offer to Ray instead of the limit detected."""

OBJECT_STORE_BYTES = "RAYSM_OBJECT_STORE_BYTES"
"""Size of Ray's object store instead of the size derived from ``/dev/shm``."""

PAYLOAD = "RAYSM_PAYLOAD"
"""Folder of the payload, where it is not the channel ``raysm``."""

# A socket's path has at most 107 bytes, of which Ray takes about 65 below its temporary folder.
RAY_TEMP_DIR = "RAYSM_RAY_TEMP_DIR"
"""Folder of Ray's sessions (short: it holds sockets). Default ``/tmp/ray``."""

SCRATCH = "RAYSM_SCRATCH"
"""Folder of what an instance needs for itself while the job runs: chosen by its first program, where the room is."""

FAILURE_RECORD = "RAYSM_FAILURE_RECORD"
"""Set by the bootstrap for the driver: the file into which the driver writes its Failure."""

# The API has no field for it, and an image of docker's has a name that says nothing of kinds.
INSTANCE_KIND_TAG = "raysm:instance-kind"
"""Tag of a job on the embedded SageMaker: the kind of its instances."""

INSTANCE_TYPE_TAG = "raysm:instance-type"
"""Tag of a job on the embedded SageMaker whose user chose no instance type; the API wants one all the same."""

LOCAL_BUCKET = "raysm-local"
"""The bucket of the embedded SageMaker: payloads go there, and are kept for follow-up jobs. Those of other regions than
LOCAL_REGION have the region's name behind it."""

LOCAL_REGION = "us-east-1"
"""The default region of the embedded SageMaker."""

# Jobs that raysm did not send have none of these tags.
PROJECT_TAG = "raysm:project"
"""Tag: the project of the job's task."""

TASK_TAG = "raysm:task"
"""Tag: the name of the task, whose runs the jobs are."""

WORKLOAD_TAG = "raysm:workload"
"""Tag: the kind of the workload, which says what the result is."""

TRACKING_TAG = "raysm:tracking"
"""Tag: MLflow's file on the machine that the job was sent from, in which its metrics are copied."""

PYTHON_TAG = "raysm:python"
"""Tag: the version of the Python whose pickles come back, a value or an exception; where the result is a value."""

# Tags, not a file: any process that watches the job when it ends sends the follow-up.
MAX_RESTARTS_TAG = "raysm:max-restarts"
"""Tag: how often a job that ran too long goes on in a follow-up job."""

RESTART_TAG = "raysm:restart"
"""Tag: the number of the follow-up job, from 1."""

FIRST_TAG = "raysm:first"
"""Tag: the name of the job that a follow-up job goes on with."""

STATE = "RAYSM_STATE"
"""Told to user code: the folder of this instance among the checkpoints, which survives the job's restarts and re-runs
with ``resume``; not set where the job has no checkpoints."""

TRIAL = "RAYSM_TRIAL"
"""Told to a trial of a sweep: the folder of this trial on its instance, removed after it."""

# A prefix of our own: Ray refuses labels of others that begin with its own, ray.io/.
LABEL_HOST = "raysm.io/host"
"""Ray label of a node: the instance's host name, ``algo-1``."""

LABEL_GROUP = "raysm.io/group"
"""Ray label of a node: its instance group."""

LABEL_INSTANCE_TYPE = "raysm.io/instance-type"
"""Ray label of a node: its instance type."""

LABEL_RANK = "raysm.io/rank"
"""Ray label of a node: 0 for the head, then the others by their number."""

# The service's own name: https://github.com/aws/sagemaker-training-toolkit knows it too.
TUNING_OBJECTIVE = "_tuning_objective_metric"
"""Hyperparameter by which a tuning job tells its training jobs what counts; others have none of this name."""


def natural(name: str) -> tuple[list[tuple[int, int, str]], str]:
    """Return what names are sorted by: ``part-2`` before ``part-10``, ``algo-2`` before ``algo-10``."""
    pieces = re.findall(r"\d+|\D+", name)
    # Last the name itself: part-2 and part-02 are one to the numbers, and every instance must sort alike.
    return [(0, int(p), "") if p.isdecimal() and p.isascii() else (1, 0, p) for p in pieces], name


def counted(number: int, noun: str) -> str:
    """Return a number and its noun, which takes an s unless the number is 1."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
