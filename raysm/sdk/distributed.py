"""``Ray``: a way to distribute, for the SageMaker SDK's ``ModelTrainer``.

The SDK uploads a folder and runs its script on every instance. There raysm's bootstrap forms one Ray cluster and runs
the entry script on its head.

What the SDK's way of starting costs: a stop and a spot interruption do not reach user code, which has no grace. The SDK
puts ``/bin/bash -c`` between SageMaker's init and everything else. The init (tini, as public logs of jobs show it)
passes SIGTERM on to bash alone, which dies of it at once, and the container with it; where bash is the first process
itself, it does not hear SIGTERM, and everything is killed 120 s later. Jobs that must write a checkpoint then write it
from time to time, or go by ``raysm.submit``, whose first program is raysm's own.
"""

import shutil
import tempfile
import weakref
from pathlib import Path
from typing import Literal

from pydantic import Field
from sagemaker.train.distributed import DistributedConfig

from raysm.contract import payload
from raysm.contract.seal import START

__all__ = ["Ray"]

FOLDER = "raysm"
"""A folder of our own: the SDK copies ours over its own drivers."""


class Ray(DistributedConfig):  # type: ignore[misc]  # the SDK has no types
    """Run the entry script, a Python file, on the head of a Ray cluster of all instances.

    The script is run once, with ``RAY_ADDRESS`` set, the hyperparameters as its arguments and the SDK's ``SM_*``
    variables; ``ray.init()`` joins the cluster, and with ``init`` the script finds itself joined. A failure's first
    line becomes the job's FailureReason.

    Example::

        ModelTrainer(
            training_image=…,
            source_code=SourceCode(source_dir="src", entry_script="train.py", requirements="requirements.txt"),
            compute=Compute(instance_type="ml.c5.xlarge", instance_count=4),
            distributed=raysm.sdk.Ray(),
        ).train()
    """

    init: bool = False
    """Joins the cluster before the script begins: for a script that calls no ``ray.init()``, as those of AWS's samples
    do, whose launcher has called it. One that calls it is refused by Ray, as any second call."""
    head: str | None = None
    """The instance group whose first instance is the head; None is the instance with the lowest number of all."""
    coordinator_only: bool = False
    """True keeps all work off the head."""
    min_instances: int | None = Field(default=None, ge=1)
    """Go on with this many when the joining deadline passes; None is all of them."""
    join_timeout_s: float = Field(default=600.0, gt=0)
    """Seconds from the start of the head until every instance must have joined."""
    placement_timeout_s: float = Field(default=600.0, gt=0)
    """Seconds for which Ray may wait for resources that no instance has; then the job fails."""
    on_instance_loss: Literal["fail", "continue"] = "fail"
    """What the loss of an instance other than the head does to the job."""
    # Cluster's own bounds: what breaks them would else be found in the instances, which are paid by then.
    silence_s: float = Field(default=30.0, ge=3, le=86_400)
    """Seconds for which an instance may say nothing before it is lost."""

    @property
    def driver_dir(self) -> str:
        """A new folder with a new secret each time that the SDK asks, which it does once for every job.

        It lives as long as this object.
        """
        # mkdtemp makes it 0700: other users of this machine are not to read the secret.
        folder = tempfile.mkdtemp(prefix="raysm-sdk-")
        # Not sooner: the SDK copies the folder some time after this has returned.
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        payload.pack_driver(Path(folder) / FOLDER)
        return folder

    @property
    def driver_script(self) -> str:
        """What the SDK's ``sm_train.sh`` runs on every instance, below ``driver_dir``."""
        return f"{FOLDER}/{START}"
