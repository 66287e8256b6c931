"""What a job says while its dashboard is looked at."""

from raysm.contract.events import Metric, State, line
from raysm.views.dashboard.watch import Watch
from tests.support.client_jobs import NOW_MS

ANSWERS = State(name="dashboard", host="algo-1", address="http://10.0.0.7:8265")


def look(watch):
    watch.take(watch.read())
    return watch


def test_it_knows_where_the_dashboard_answers_once_the_job_has_said_so(remote, job):
    watch = look(Watch(job))
    assert watch.place is None
    remote.write_log(job.name, "algo-1", [(NOW_MS, line(ANSWERS))])
    assert (look(watch).place.host, watch.place.port) == ("algo-1", 8265)


def test_it_keeps_the_values_of_metrics(remote, job):
    values = [(NOW_MS + step, line(Metric(name="loss", value=step, time_s=step))) for step in range(3)]
    remote.write_log(job.name, "algo-1", [*values, (NOW_MS + 9, "epoch 1")])
    assert look(Watch(job)).timeline.series("loss") == {"": [(0, 0), (1, 1), (2, 2)]}


def test_a_value_is_read_once(remote, job):
    watch = look(Watch(job))
    remote.write_log(job.name, "algo-1", [(NOW_MS, line(Metric(name="loss", value=1.0, time_s=1.0)))])
    assert len(look(look(watch)).timeline.series("loss")[""]) == 1


def test_it_knows_that_the_job_has_ended(remote, job):
    watch = look(Watch(job))
    assert not watch.is_over
    remote.sagemaker.end(job.name, "Completed")
    assert look(watch).is_over
