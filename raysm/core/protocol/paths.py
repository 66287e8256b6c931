"""Every path of a job inside an instance.

Sources: the SageMaker developer guide, "How Amazon SageMaker Provides Training Information" and
"How Amazon SageMaker Processing Configures Your Processing Container".
"""

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

from raysm.core.protocol.job_api import APIS, TRAINING, JobApi
from raysm.core.request.job import PAYLOAD_CHANNEL

DEFAULT_BASE = Path("/opt/ml")
SDK_CODE = "code"
"""Channel in which the SageMaker SDK sends the user's source."""
SDK_DRIVERS = "sm_drivers"
"""Channel in which the SageMaker SDK sends its scripts that start the user's source."""


@dataclass(frozen=True, slots=True)
class Paths:
    """The SageMaker layout under one base folder."""

    base: Path = DEFAULT_BASE
    api: JobApi = TRAINING
    scratch_root: Path | None = None
    """The folder for raysm's temporary files; None is ``scratch`` below the base folder."""

    @classmethod
    def found_in(cls, base: Path) -> "Paths":
        """Return the layout that the service has made under ``base``.

        If the service has made none yet, return the layout of a Training job.
        """
        # The file decides, because a Processing job may have a user's folder input/config.
        training = cls(base)
        if training.resource_config.exists():
            return training
        layouts = (cls(base, api) for api in APIS)
        return next(
            (paths for paths in layouts if paths.description and paths.description.exists()),
            training,
        )

    @property
    def config(self) -> Path:
        return self.base / self.api.layout.config

    @property
    def resource_config(self) -> Path:
        """The file that lists the hosts and names this one."""
        return self.config / "resourceconfig.json"

    @property
    def hyperparameters(self) -> Path:
        """Flat JSON object of strings (training only)."""
        return self.config / "hyperparameters.json"

    @property
    def input_data_config(self) -> Path:
        """The channels and their modes (training only)."""
        return self.config / "inputdataconfig.json"

    @property
    def checkpoint_config(self) -> Path:
        """Exists if the job has a checkpoint URI (training only)."""
        return self.config / "checkpointconfig.json"

    @property
    def init_config(self) -> Path:
        """How many hosts there are, and the number of this one, undocumented (training only)."""
        return self.config / "init-config.json"

    @property
    def job_config(self) -> Path:
        """The whole job, undocumented (training only)."""
        return self.config / "trainingjobconfig.json"

    @property
    def metric_definitions(self) -> Path:
        """The regular expressions of metrics, undocumented (training only)."""
        return self.config / "metric-definition-regex.json"

    @property
    def upstream_output_config(self) -> Path:
        """Where outputs go, undocumented (training only)."""
        return self.config / "upstreamoutputdataconfig.json"

    @property
    def description(self) -> Path | None:
        """The whole job (processing only)."""
        description = self.api.layout.description
        return None if description is None else self.base / description

    @property
    def channels(self) -> Path:
        return self.base / self.api.layout.channels

    def channel(self, name: str) -> Path:
        return self.channels / name

    @property
    def payload(self) -> Path:
        """Folder of the payload, a channel of its own."""
        return self.channel(PAYLOAD_CHANNEL)

    @property
    def model(self) -> Path:
        """Folder of the result.

        It is uploaded as files to ``output/model/``, or as a Processing job's ``raysm-result``.
        """
        return self.base / self.api.layout.model

    @property
    def output_data(self) -> Path:
        """Folder of other outputs.

        It is uploaded to ``output/data/``, or as a Processing job's output ``raysm-data``.
        """
        return self.base / self.api.layout.output_data

    @property
    def failure(self) -> Path:
        """The file whose first 1024 characters become FailureReason (in Processing ExitMessage)."""
        return self.base / self.api.layout.failure

    @property
    def checkpoints(self) -> Path:
        """Folder that the service synchronises with the checkpoint URI (training only).

        All hosts share one prefix.
        """
        return self.base / "checkpoints"

    def state(self, host: str) -> Path:
        """Folder of ``host`` among the checkpoints, because all instances share one prefix."""
        return self.checkpoints / host

    @property
    def working(self) -> Path:
        """The folder in which a training's workers run; with ``in_state`` a link to the state."""
        return self.scratch / "training"

    def records(self, *, lasting: bool) -> Path:
        """Folder of a similarity's finished parts.

        With ``lasting`` it is among the checkpoints, else it is lost with the job.

        It is never below the result, because a killed driver would leave it there.
        """
        return (self.checkpoints / "raysm" if lasting else self.scratch) / "similarity"

    @property
    def batch(self) -> Path:
        """Folder of the finished parts of a batch inference, among the checkpoints."""
        return self.checkpoints / "raysm" / "batch"

    def sweep(self, *, lasting: bool) -> Path:
        """Folder of a sweep's trials.

        With ``lasting`` it is among the job's checkpoints, else it is lost with the job.
        """
        return (self.checkpoints / "raysm" if lasting else self.scratch) / "sweep"

    @property
    def warm_pool_cache(self) -> Path:
        """Folder that the next job of a warm pool finds again.

        https://docs.aws.amazon.com/sagemaker/latest/dg/train-warm-pools.html
        """
        return self.base / "sagemaker" / "warmpoolcache"

    @property
    def scratch(self) -> Path:
        """Folder of raysm's temporary files: never uploaded, lost with the instance.

        The instance's first program chooses between ``/tmp/raysm`` and this one
        (``bootstrap.scratch``).
        """
        return self.scratch_root or self.base / "scratch"


def kernels_folder() -> Path:
    """Return this user's folder of compiled kernels; it may not exist yet."""
    # The name contains the user's id, because processes must not load another user's files.
    return Path(tempfile.gettempdir()) / f"raysm-kernels-{os.getuid()}"
