"""A job that its cap ends, on the embedded SageMaker, and the one that continues it."""

import pytest

import raysm
from raysm.core.client.job.description import budget_used
from raysm.core.client.job.handle import attach
from raysm.errors import JobFailed

COUNTS = """
import os, pathlib, signal, time

state = pathlib.Path(os.environ["RAYSM_STATE"]) / "steps"
if state.exists():
    print(f"continued after {state.read_text()} steps")
    raise SystemExit
stopped = []
signal.signal(signal.SIGTERM, lambda *_: stopped.append(True))
steps = 0
while not stopped:
    time.sleep(0.05)
    steps += 1
state.write_text(str(steps))
print(f"saved {steps} steps")
"""


def test_a_job_is_stopped_by_the_service_before_it_costs_more_and_continues_with_another_cap(
    home, tmp_path
):
    script = tmp_path / "count.py"
    script.write_text(COUNTS)

    def limits(usd):
        # An instance costs 1 USD a second.
        return raysm.Limits(max_cost=usd, price_per_hour=3600)

    # A stop may take 120 s, which leaves 15 s.
    job = raysm.submit(raysm.Script(str(script)), limits=limits(135))
    with pytest.raises(JobFailed, match="stopped: its budget of 135 USD is used") as failed:
        job.result(120)
    assert "--resume --max-cost" in failed.value.remedy
    # Another process knows no more than the service says.
    assert budget_used(attach(job.name).describe()).startswith("stopped: its budget of 135 USD")
    assert any("saved" in line.text for line in job.lines())
    again = raysm.submit(raysm.Script(str(script)), limits=limits(500), resume=True)
    again.result(120)
    assert any("continued after" in line.text for line in again.lines())
