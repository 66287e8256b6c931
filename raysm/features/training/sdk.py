"""``Ray``: a distribution for the SageMaker SDK's ``ModelTrainer``.

The SDK uploads a folder and runs its script on every instance. There raysm's bootstrap forms one
Ray cluster and runs the entry script on its head.

User code gets no grace period at a stop or a spot interruption, because the SDK puts
``/bin/bash -c`` between SageMaker's init and everything else. The init (tini, in public logs of
jobs) sends SIGTERM to bash alone, which dies at once, and the container with it. If bash is the
first process itself, it ignores SIGTERM, and everything is killed 120 s later. Jobs that need a
checkpoint then write one from time to time, or use ``raysm.submit``.
"""

import shutil
import tempfile
import weakref
from pathlib import Path
from typing import Literal

from pydantic import Field
from sagemaker.train.distributed import DistributedConfig

from raysm.core.protocol import payload
from raysm.core.protocol.seal import START

__all__ = ["Ray"]

FOLDER = "raysm"
"""A folder of our own, because the SDK copies ours over its own drivers."""


class Ray(DistributedConfig):  # type: ignore[misc]  # the SDK has no types
    """Run the entry script, a Python file, on the head of a Ray cluster of all instances.

    The script is run once, with ``RAY_ADDRESS`` set, the hyperparameters as its arguments and the
    SDK's ``SM_*`` variables; ``ray.init()`` joins the cluster, and with ``init`` the script finds
    itself joined. A failure's first line becomes the job's FailureReason.

    Example::

        ModelTrainer(
            training_image=…,
            source_code=SourceCode(
                source_dir="src", entry_script="train.py", requirements="requirements.txt"
            ),
            compute=Compute(instance_type="ml.c5.xlarge", instance_count=4),
            distributed=raysm.sdk.Ray(),
        ).train()
    """

    init: bool = False
    """Joins the cluster before the script begins, for a script without ``ray.init()``, as in AWS's
    samples, whose launcher calls it. Ray refuses a second call."""
    head: str | None = None
    """The instance group whose first instance is the head; None is the instance with the lowest
    number of all."""
    coordinator_only: bool = False
    """True keeps all work off the head."""
    min_instances: int | None = Field(default=None, ge=1)
    """Number of instances that is enough when the joining deadline passes; None is all of them."""
    join_timeout_s: float = Field(default=600.0, gt=0)
    """Seconds from the start of the head until every instance must have joined."""
    placement_timeout_s: float = Field(default=600.0, gt=0)
    """Seconds after which the job fails if Ray waits for resources that no instance has."""
    on_instance_loss: Literal["fail", "continue"] = "fail"
    """What the loss of an instance other than the head does to the job."""
    # The bounds of Cluster, checked before instances are paid for.
    silence_s: float = Field(default=30.0, ge=3, le=86_400)
    """Seconds without a heartbeat after which an instance is lost."""

    @property
    def driver_dir(self) -> str:
        """A new folder with a new secret for each job, which is deleted with this object."""
        # mkdtemp creates it with mode 0700, because it contains a secret.
        folder = tempfile.mkdtemp(prefix="raysm-sdk-")
        # Not earlier, because the SDK copies the folder later.
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        payload.pack_driver(Path(folder) / FOLDER)
        return folder

    @property
    def driver_script(self) -> str:
        """The script below ``driver_dir`` that the SDK's ``sm_train.sh`` runs on every instance."""
        return f"{FOLDER}/{START}"
