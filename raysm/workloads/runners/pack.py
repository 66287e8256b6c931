"""Rows of a grid on the formed cluster: each as a task of Ray, as many at a time as the instances have room for.

What flows in are the rows, what flows out are their files and the record of them, among the checkpoints. The job is
Completed whatever becomes of its rows: which of them are tried again is the grid's to say.
"""

import time
from collections.abc import Iterator, Sequence

import ray

from raysm.bootstrap.log import emit_event, remark
from raysm.contract.result import ROW_RECORD, outcomes_text
from raysm.contract.store import put
from raysm.request.pack import Pack, PackedRow
from raysm.workloads.blocks import map_blocks, task_slots
from raysm.workloads.nodes import cluster_nodes
from raysm.workloads.pack.record import RowRecord
from raysm.workloads.pack.row import RowBlock, run_row
from raysm.workloads.progress import ProgressThrottle
from raysm.workloads.runner import Runner
from raysm.workloads.termination import leave_on_sigterm

__all__ = ["PackRunner"]


class PackRunner(Runner[Pack]):
    """Runs the rows."""

    def run(self, address: str) -> None:
        """Run all rows that an earlier run of the same pack has not brought to their end."""
        begun_s = time.monotonic()
        ray.init(address=address, configure_logging=False)
        # What is known of the rows is on disk already, so SIGTERM may end the work anywhere.
        leave_on_sigterm()
        record = RowRecord(self.environment.paths.rows)
        rows = [row for row in self.workload.rows if row.name not in record.outcomes]
        try:
            self._run(rows, record)
        finally:
            ray.shutdown()
        # Of all that was run of this pack, by earlier jobs too: what they left is not lost with them.
        put(self.environment.paths.model / ROW_RECORD, outcomes_text(record.outcomes))
        failed = sum(record.outcomes[row.name].state == "failed" for row in self.workload.rows)
        self.describe_result(
            {"rows": time.monotonic() - begun_s},
            measures={
                "rows": float(len(self.workload.rows)),
                "failed_rows": float(failed),
                "resumed_rows": float(len(self.workload.rows) - len(rows)),
            },
        )

    def _run(self, rows: Sequence[PackedRow], record: RowRecord) -> None:
        cpus, gpus = self.workload.cpus, self.workload.gpus
        if gpus is None:
            gpus = 1.0 if any(node.gpus for node in cluster_nodes()) else 0.0

        def begin() -> Iterator[RowBlock]:
            for row in rows:
                record.begin(row.name)
                yield RowBlock(row, self.workload.script)

        throttle = ProgressThrottle("rows", len(self.workload.rows), "rows", emit_event)
        throttle.reach(len(self.workload.rows) - len(rows))
        # No more in flight than run: a row counts as begun when it is handed over.
        in_flight = task_slots(cpus, gpus)
        for block, outcome in map_blocks(run_row, begin(), num_cpus=cpus, num_gpus=gpus, in_flight=in_flight):
            record.end(block.row.name, outcome)
            if outcome.state == "failed":
                remark(f"{block} failed: {outcome.reason}")
            throttle.add(1)
