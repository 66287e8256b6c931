"""What an instance has, from trees of files that look like one, and its address."""

import asyncio
import socket
import threading

import pytest

from raysm.instance import address, resources
from raysm.instance.address import Interface
from raysm.instance.resources import plan_object_store

GIB = 2**30


def tree(root, **files):
    for name, text in files.items():
        path = root / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def files(root, contents):
    return tree(root, **{name.replace("/", "__"): text for name, text in contents.items()})


@pytest.mark.parametrize(
    ("contents", "expected"),
    [
        ({"sys/fs/cgroup/cpu.max": "150000 100000\n"}, 1),
        ({"sys/fs/cgroup/cpu.max": "max 100000\n"}, 8),
        (
            {
                "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "300000",
                "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000",
            },
            3,
        ),
        ({"proc/self/cgroup": "0::/job\n", "sys/fs/cgroup/job/cpu.max": "200000 100000"}, 2),
        ({}, 8),
    ],
)
def test_cpus_are_those_of_the_container(tmp_path, contents, expected):
    assert resources.count_cpus(files(tmp_path, contents), affinity=8) == expected


@pytest.mark.parametrize(
    ("contents", "expected"),
    [
        ({"sys/fs/cgroup/memory.max": str(4 * GIB)}, 4 * GIB),
        ({"sys/fs/cgroup/memory/memory.limit_in_bytes": str(3 * GIB)}, 3 * GIB),
        ({"sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712"}, 16 * GIB),
        (
            {
                "proc/self/cgroup": "4:memory:/box/job\n",
                "sys/fs/cgroup/memory/box/job/memory.limit_in_bytes": "99",
            },
            99,
        ),
    ],
)
def test_memory_is_that_of_the_container(tmp_path, contents, expected):
    machine = {"proc/meminfo": f"MemTotal:       {16 * GIB // 1024} kB\nMemFree: 1 kB\n"}
    assert resources.memory_limit(files(tmp_path, machine | contents)) == expected


@pytest.mark.parametrize(
    ("visible", "expected"),
    [("0,1,2", 3), ("", 0), ("-1", 0), ("1", 1), ("0,-1,2", 1), ("GPU-ab, GPU-cd", 2)],
)
def test_cuda_visible_devices_decides_where_it_is_set(visible, expected):
    assert (
        resources.count_gpus({"CUDA_VISIBLE_DEVICES": visible}, smi=lambda: "GPU 0: x\n" * 8)
        == expected
    )


def test_docker_s_64_mib_of_shared_memory_put_it_on_a_disk_and_that_is_said(tmp_path):
    store = plan_object_store(10 * GIB, 64 * 2**20, tmp_path / "store", disk_free_bytes=100 * GIB)
    assert (store.bytes, store.folder) == (3 * GIB, tmp_path / "store")
    assert "/dev/shm has 64 MiB free" in store.warning
    assert "--shm-size" in store.warning


def test_a_size_that_was_asked_for_is_kept_even_if_only_a_disk_has_the_room(tmp_path):
    assert plan_object_store(10 * GIB, 8 * GIB, tmp_path, asked_bytes=5 * GIB).bytes == 5 * GIB
    store = plan_object_store(
        10 * GIB, 1 * GIB, tmp_path, asked_bytes=5 * GIB, disk_free_bytes=100 * GIB
    )
    assert (store.bytes, store.folder) == (5 * GIB, tmp_path)


@pytest.mark.parametrize(
    ("contents", "expected"),
    [
        (
            {"sys/class/infiniband/rdmap0s1/device/vendor": "0x1d0f", "dev/infiniband/uverbs0": ""},
            True,
        ),
        (
            {"sys/class/infiniband/mlx5_0/device/vendor": "0x15b3", "dev/infiniband/uverbs0": ""},
            False,
        ),
        ({"sys/class/infiniband/rdmap0s1/device/vendor": "0x1d0f"}, False),
        ({"sys/class/infiniband/efa_0/ports": "", "dev/infiniband/uverbs0": ""}, True),
    ],
)
def test_efa_is_there_only_if_a_device_is_attached_and_passed_in(tmp_path, contents, expected):
    assert resources.has_efa(files(tmp_path, contents)) is expected


def test_a_resolver_that_hangs_holds_nobody_up():
    release = threading.Event()

    async def scenario():
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(
                address.resolve("algo-1", lambda host: str(release.wait(90))), 0.1
            )

    asyncio.run(scenario())
    release.set()


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (socket.gaierror(), "the name algo-1 does not resolve"),
        (
            ConnectionRefusedError(),
            "algo-1 refuses connections on port 6380: nothing listens there",
        ),
        (TimeoutError(), "a firewall or security group may drop the packets"),
        (OSError("no route to host"), "algo-1, port 6380: no route to host"),
    ],
)
def test_an_error_becomes_a_cause(error, words):
    assert words in address.explain(error, "algo-1", 6380)


ETH0, ETH1 = Interface("eth0", "10.0.0.5"), Interface("eth1", "10.0.1.5")
LO = Interface("lo", "127.0.0.1")


def own_address(*interfaces, named=None, told=None, names=()):
    """Return what an instance finds out, and the names that it asked for on the way."""
    asked = []

    def lookup(host):
        asked.append(host)
        if host not in names:
            raise socket.gaierror
        return names[host]

    found = asyncio.run(address.find_own_address("algo-1", named, told, lambda: interfaces, lookup))
    return found, asked


def test_the_address_of_the_only_interface_is_found_without_asking_for_a_name():
    wrong = {"algo-1": "10.66.66.66"}
    assert own_address(LO, ETH0, names=wrong) == ("10.0.0.5", [])


def test_of_several_interfaces_the_one_that_the_name_means_is_found():
    assert own_address(LO, ETH0, ETH1, names={"algo-1": "10.0.1.5"}) == ("10.0.1.5", ["algo-1"])


@pytest.mark.parametrize("names", [{}, {"algo-1": "127.0.0.1"}])
def test_a_name_that_does_not_resolve_or_to_loopback_hinders_nothing(names):
    assert own_address(LO, ETH0, ETH1, names=names)[0] in ("10.0.0.5", "10.0.1.5")


def test_an_address_that_was_told_is_taken_as_it_is():
    assert (
        own_address(LO, ETH0, named="algo-1.inside", names={"algo-1.inside": "10.0.0.8"})[0]
        == "10.0.0.8"
    )
    assert own_address(LO, ETH0, named="127.0.0.1", names={"127.0.0.1": "127.0.0.1"})[0] is None


def test_another_instance_whose_name_means_this_one_is_not_called():
    with pytest.raises(address.MisleadingName) as caught:
        asyncio.run(address.resolve_peer("algo-1", lambda host: "127.0.0.1"))
    words = "the name algo-1 resolves to 127.0.0.1 here, which is this instance itself"
    assert address.explain(caught.value, "algo-1", 6380) == words
