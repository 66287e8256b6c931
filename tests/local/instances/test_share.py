"""The division of one machine."""

import pytest

from raysm.local.instances.share import DEFAULT_SHM_BYTES, SMALLEST_OBJECT_STORE, Machine, Share, memory_left, split

GIB = 2**30


def machine(**fields):
    return Machine(**{"cpus": (0, 1, 2, 3, 4), "memory_bytes": 100 * GIB, "shm_bytes": 50 * GIB, **fields})


def test_cpus_are_divided_without_overlap_where_there_are_enough():
    assert [(share.cpus, share.affinity) for share in split(machine(), 2)] == [(3, (0, 1, 2)), (2, (3, 4))]


def test_instances_that_would_be_confined_to_one_cpu_are_not_confined():
    assert [(share.cpus, share.affinity) for share in split(machine(), 3)] == [(2, None), (2, None), (1, None)]


def test_memory_is_divided_after_the_machine_has_kept_some():
    assert {share.memory_bytes for share in split(machine(), 4)} == {20 * GIB}


def test_the_object_store_is_limited_by_the_memory_and_by_shm():
    assert split(machine(), 1)[0].object_store_bytes == 24 * GIB
    assert split(machine(shm_bytes=10 * GIB), 2)[0].object_store_bytes == 4 * GIB
    assert split(machine(shm_bytes=1), 1)[0].object_store_bytes == SMALLEST_OBJECT_STORE


@pytest.mark.parametrize(
    ("gpus", "expected"), [((), [None, None]), (("a",), [("a",), ()]), (("a", "b"), [("a",), ("b",)])]
)
def test_gpus_are_divided_and_an_instance_without_one_sees_none(gpus, expected):
    assert [share.gpus for share in split(machine(gpus=gpus), 2)] == expected


@pytest.mark.parametrize(
    "files",
    [
        {"memory.max": f"{8 * GIB}\n", "memory.current": f"{7 * GIB}\n", "memory.stat": f"inactive_file {GIB}\n"},
        {
            "memory/memory.limit_in_bytes": f"{8 * GIB}",
            "memory/memory.usage_in_bytes": f"{7 * GIB}",
            "memory/memory.stat": f"total_inactive_file {GIB}",
        },
    ],
    ids=["v2", "v1"],
)
def test_memory_that_the_container_uses_already_is_not_there_but_what_it_can_give_back_is(tmp_path, files):
    for name, text in files.items():
        path = tmp_path / "sys/fs/cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert memory_left(100 * GIB, tmp_path) == 2 * GIB
    assert memory_left(GIB, tmp_path) == GIB


def test_shared_memory_is_half_of_an_instances_memory_and_an_engines_default_where_there_is_no_limit():
    assert Share(memory_bytes=10_000).shm_bytes == 5_000
    assert Share().shm_bytes == DEFAULT_SHM_BYTES
