"""A training loop in every worker, by Ray Train; ``workloads.training`` does the work."""

from raysm.request.programs import TrainLoop
from raysm.workloads.runner import Runner, naming_what_is_missing
from raysm.workloads.training.launch.data_parallel import run_data_parallel

__all__ = ["DataParallelRunner"]


class DataParallelRunner(Runner[TrainLoop]):
    """Calls the loop in every worker."""

    def run(self, address: str) -> None:
        """Call it to its end; ``training.launch`` says what it raises."""
        # Ray Train says in words of its own, without a name, what it lacks. What a loop lacks comes as WorkerFailed.
        with naming_what_is_missing(self.workload, "what Ray Train needs (pandas, among others)"):
            run_data_parallel(self.workload, self.payload, self.environment)
