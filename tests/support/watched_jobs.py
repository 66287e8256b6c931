"""Cells of a notebook in which a job is watched that says what the test wants, hostile lines too."""

HOSTILE = "</pre></div><script>document.title = 'taken'</script><svg onload=alert(1)> "
"""A line of a job that would change the page in which it stood as more than text."""

BEGIN = """
import pathlib
import raysm
from raysm.core.protocol.events import Metric, Progress, State, line
from raysm.testing import FakeSageMaker

class Running(FakeSageMaker):
    is_over = False
    def describe(self, api, name):
        answer = super().describe(api, name)
        if self.is_over:
            return answer
        del answer["TrainingEndTime"]
        return answer | {"TrainingJobStatus": "InProgress", "SecondaryStatus": "Training"}

pathlib.Path("train.py").touch()
fake = Running(pathlib.Path("home").absolute())
job = raysm.submit(raysm.Script("train.py"), on=fake, name="digits", cluster=raysm.Cluster(count=2))
del fake.lines[job.name]  # it has written nothing yet
"""

TELL = f"""
import time
hostile = {HOSTILE!r} "\\x1b[31mred\\x1b[0m"
percent = [("algo-1", "cpu_percent", 87.0), ("algo-1", "memory_percent", 41.0)]
percent += [("algo-2", "cpu_percent", 64.0), ("algo-2", "memory_percent", 38.0)]
fake.lines[job.name] = (
    line(State(name="formed", host="algo-1", count=2, total=2)),
    *(line(Progress(phase="training", done=step, total=20, unit="epochs", time_s=time.time() - 0.5 * (16 - step)))
      for step in range(16)),
    *(line(Metric(name="loss", value=2.0 * 0.8**step + 0.1, step=step)) for step in range(16)),
    *(line(Metric(name=name, value=value, host=host)) for host, name, value in percent),
    hostile,
    "epoch 15 is done",
)
"""

END = "fake.is_over = True"
