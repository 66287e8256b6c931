"""A script written for torchrun, on all instances that train; ``workloads.training`` does the work."""

from raysm.request.programs import TorchScript
from raysm.workloads.runner import Runner, naming_what_is_missing
from raysm.workloads.training.launch.torch_script import run_torch_script

__all__ = ["TorchScriptRunner"]


class TorchScriptRunner(Runner[TorchScript]):
    """Runs the script in every worker."""

    def run(self, address: str) -> None:
        """Run it to its end; ``training.launch`` says what it raises."""
        with naming_what_is_missing(self.workload):
            run_torch_script(self.workload, self.payload, self.environment)
