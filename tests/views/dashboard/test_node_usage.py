"""How busy the instances are, by Ray's list of its nodes."""

from raysm.views.dashboard.node_usage import samples_of
from tests.support.dashboard_head import NODE, NODES


def listed(*nodes):
    return {"data": {"summary": list(nodes)}}


def values(answer):
    return {(sample.host, sample.name): sample.value for sample in samples_of(answer, 100.0)}


def test_a_node_tells_its_cpu_memory_network_disk_and_store():
    assert values(NODES) == {
        ("algo-1", "cpu_percent"): 37.5,
        ("algo-1", "memory_percent"): 75.0,
        ("algo-1", "memory_bytes"): 6000.0,
        ("algo-1", "network_sent_bytes_per_s"): 10.0,
        ("algo-1", "network_received_bytes_per_s"): 20.0,
        ("algo-1", "disk_read_bytes_per_s"): 30.0,
        ("algo-1", "disk_written_bytes_per_s"): 40.0,
        ("algo-1", "object_store_bytes"): 7.0,
        ("", "nodes"): 1.0,
    }


def test_a_speed_that_is_all_bytes_by_the_seconds_since_1970_is_none_yet():
    made_up = {"now": 1.8e9, "network": [3.6e9, 9.0e9], "networkSpeed": [2.0, 5.0]}
    told = values(listed({**NODE, **made_up}))
    assert not any(name.startswith("network") for _, name in told)
    assert told["algo-1", "disk_read_bytes_per_s"] == 30.0
    assert ("algo-1", "cpu_percent") not in values(listed({**NODE, **made_up, "cpu": 0.0}))
    told = values(listed({**NODE, **made_up, "networkSpeed": [2.0, 7.5], "cpu": 0.0}))
    assert told["algo-1", "network_received_bytes_per_s"] == 7.5
    assert told["algo-1", "cpu_percent"] == 0.0
    # A machine that has neither read nor written.
    told = values(listed({**NODE, "now": 1.8e9, "diskIo": [0, 0], "diskIoSpeed": [0.0, 0.0]}))
    assert told["algo-1", "disk_read_bytes_per_s"] == 0.0


def test_of_several_gpus_the_mean_work_and_the_fullest_memory_count():
    gpus = [
        {"utilizationGpu": 20, "memoryUsed": 1, "memoryTotal": 10},
        {"utilizationGpu": 40, "memoryUsed": 9, "memoryTotal": 10},
        {"utilizationGpu": None, "memoryUsed": 0, "memoryTotal": 10},
    ]
    told = values(listed({**NODE, "gpus": gpus}))
    assert told["algo-1", "gpu_percent"] == 30.0
    assert told["algo-1", "gpu_memory_percent"] == 90.0


def test_a_node_that_is_gone_is_not_counted():
    gone = {**NODE, "raylet": {**NODE["raylet"], "state": "DEAD"}}
    assert values(listed(gone)) == {("", "nodes"): 0.0}


def test_a_node_that_has_told_nothing_yet_is_counted_all_the_same():
    new = {"raylet": {"nodeId": "0123456789", "state": "ALIVE"}}
    assert values(listed(new)) == {("", "nodes"): 1.0}


def test_a_node_of_others_goes_by_its_host_name():
    other = {**NODE, "raylet": {"nodeId": "ab", "state": "ALIVE"}}
    assert ("machine", "cpu_percent") in values(listed(other))


def test_every_value_has_the_time_at_which_it_was_asked_for():
    assert {sample.time_s for sample in samples_of(NODES, 100.0)} == {100.0}
