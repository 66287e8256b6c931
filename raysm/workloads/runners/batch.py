"""Runs a batch inference on the formed cluster.

Finished parts are kept beside the job's checkpoints, if it has any, so an interrupted job continues where it stopped.
"""

import ray

from raysm.bootstrap.log import emit_event
from raysm.contract.store import remove_unfinished
from raysm.request.batch import BatchInference
from raysm.workloads.runner import Runner, leave_on_sigterm, naming_what_is_missing

__all__ = ["BatchRunner"]


class BatchRunner(Runner[BatchInference]):
    """Predicts all records of a channel."""

    def run(self, address: str) -> None:
        """Predict them; ``workloads.batch.run`` says what it raises."""
        with naming_what_is_missing(self.workload):
            from raysm.workloads.batch.run import Places, measures_of, run_batch
        channel = self.workload.channel_of(self.request.inputs)
        # RAY_ADDRESS names the cluster, and RAY_AUTH_TOKEN_PATH the token: "auto" takes no other one.
        ray.init(address=address, configure_logging=False)
        # Finished parts are on disk already, so SIGTERM may end the work anywhere.
        leave_on_sigterm(self._clean)
        paths = self.environment.paths
        records = paths.batch if self.environment.has_checkpoints else None
        try:
            places = Places(result=paths.model, records=records)
            outcome = run_batch(self.workload, channel, self.payload.function, places, emit_event)
        finally:
            ray.shutdown()
            self._clean()
        parts = f"{len(outcome.files):,} part{'s' * (len(outcome.files) != 1)}"
        self.describe_result(
            {"predict": outcome.seconds},
            packages=self.workload.packages,
            described=outcome.files,
            measures=measures_of(outcome),
            summary=f"{outcome.rows:,} predictions by {self.workload.name} in {parts}",
        )

    def _clean(self) -> None:
        # What was growing there when SIGTERM came: a job that is stopped has its model folder uploaded too.
        remove_unfinished(self.environment.paths.model)
