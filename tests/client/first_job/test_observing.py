"""What the script says among all the other lines of a log."""

import json

from raysm.client.first_job.observing import Observation, observed
from raysm.client.first_job.probe import MARK
from raysm.client.logs import LogLine


def line(text, host="algo-2"):
    return LogLine(host=host, text=text, time_s=1.0)


def test_only_the_scripts_own_lines_are_observations_and_each_says_of_which_instance_it_is():
    said = MARK + json.dumps({"topic": "tick", "host": "algo-1", "tick": 3})
    lines = [line("a line of Ray's"), line(said), line(f"(task pid=1) {said}")]
    assert list(observed(lines)) == [Observation(topic="tick", host="algo-1", values={"tick": 3})]
