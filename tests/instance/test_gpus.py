"""GPUs that torch cannot use, or that do not compute, end the job before its workload begins.

An image's newer CUDA library takes the place of the host's.
"""

import asyncio
import os

import pytest

from raysm.errors import ClusterError, InvalidConfig
from raysm.instance.children import Children
from raysm.instance.entrypoint import without_missing_preload
from raysm.instance.gpu_look import is_product_right
from raysm.instance.gpus import (
    check_gpus,
    check_products,
    check_torch,
    compat_variables,
    has_code,
    missing_gpus,
    wait_while_it_writes,
)
from tests.support.bootstraps import Cluster, request
from tests.support.gpus import put_gpus
from tests.support.own_process import run_apart
from tests.support.waiting import until


@pytest.fixture
def instance(tmp_path, monkeypatch):
    """Return a function that makes an instance's scripted nvidia-smi and torch, and its environment."""

    def make(**scripted):
        variables = put_gpus(tmp_path, **scripted)
        monkeypatch.setenv("PATH", variables["PATH"])
        return os.environ | variables

    return make


def check(environ, gpus=1):
    """Return the warnings."""
    warnings = []

    async def look():
        children = Children()
        try:
            await check_gpus("algo-1", gpus, environ, children, warnings.append)
        finally:
            children.close()
        # The only reaper has no doubt about the child: it was no orphan.
        assert children.reaped == 0
        return warnings

    return run_apart(look)


def test_gpus_that_torch_does_not_see_end_the_job_with_driver_cuda_and_remedy(instance):
    old = instance(count=0, problem="The NVIDIA driver is too old (found 12020)")
    with pytest.raises(
        InvalidConfig, match=r"algo-1 .* 1 GPU.* 2\.9\.1\+cu130 .* CUDA 13\.0"
    ) as raised:
        check(old)
    assert "driver is too old (found 12020)" in str(raised.value)
    assert "--allow-cpu" in raised.value.remedy


def test_gpus_that_compute_pass_without_a_word(instance):
    assert check(instance(count=2), gpus=2) == []


def test_image_without_torch_passes(instance):
    assert check(instance(count=None)) == []


def test_driver_for_an_older_cuda_is_named_with_both_versions():
    torch = {
        "torch": "2.13.0+cu133",
        "cuda": "13.3",
        "driver_cuda": [12, 2],
        # NVML counts the GPUs that this torch cannot open.
        "count": 8,
        "problem": "CUDA driver version is insufficient",
        "architectures": [],
    }
    with pytest.raises(InvalidConfig, match=r"algo-2 has 8 GPUs.*CUDA 13\.3.*535\.1.*CUDA 12\.2"):
        check_torch("algo-2", 8, [torch], "535.1")


def test_cuda_that_does_not_start_under_a_new_driver_is_the_instances_fault(instance):
    broken = instance(count=1, problem="uncorrectable ECC error encountered")
    with pytest.raises(ClusterError, match=r"algo-1.*uncorrectable ECC error"):
        check(broken)


def test_torch_without_code_for_the_gpus_is_named_with_their_capability(instance):
    volta = instance(count=1, name="Tesla V100", capability=(7, 0))
    with pytest.raises(
        InvalidConfig,
        match=r"algo-1: torch 2\.9\.1.*GPU 0, Tesla V100 .* 7\.0; it has sm_75, sm_80",
    ):
        check(volta)


@pytest.mark.parametrize(
    ("architectures", "capability", "expected"),
    [
        (["sm_80", "sm_90"], (9, 0), True),
        (["sm_80"], (8, 9), True),
        (["sm_86"], (8, 0), False),
        (["sm_90"], (10, 0), False),
        (["sm_90", "compute_90"], (10, 0), True),
        (["compute_120"], (9, 0), False),
        (["sm_90a"], (9, 0), True),
        (["sm_100a", "compute_100a"], (10, 3), False),
        (["sm_100f"], (10, 3), True),
        (["compute_100f"], (12, 0), False),
        (["sm_75", "sm_80"], (7, 0), False),
        # Builds that do not say.
        ([], (9, 0), True),
        (["gfx90a"], (9, 0), True),
    ],
)
def test_code_runs_on_later_minor_versions_and_ptx_on_all_later_ones(
    architectures, capability, expected
):
    assert has_code(architectures, capability) is expected


def test_gpu_that_fails_its_first_product_is_named(instance):
    broken = instance(count=4, fails={2: "CUDA error: an illegal memory access was encountered"})
    with pytest.raises(ClusterError, match=r"algo-1: GPU 2, .*T4.*illegal memory access") as raised:
        check(broken, gpus=4)
    assert "other instances" in raised.value.remedy


def test_gpu_that_computes_a_wrong_product_is_named(instance):
    with pytest.raises(ClusterError, match=r"algo-1: GPU 1, .*wrong matrix product"):
        check(instance(count=2, wrong=(1,)), gpus=2)


def test_gpu_that_ends_the_process_is_named(instance):
    with pytest.raises(ClusterError, match=r"algo-1: GPU 0, .*ended with -7"):
        check(instance(count=2, kills=(0,)), gpus=2)


class Process:
    """It writes ``lines`` lines into a file, one while each wait lasts, and then ends or hangs."""

    def __init__(self, file, lines, ends):
        self.file, self.lines, self.ends = file, lines, ends

    async def wait(self, timeout_s):
        if self.lines == 0:
            return 0 if self.ends else None
        self.lines -= 1
        self.file.write(b"{}\n")
        self.file.flush()
        return None


@pytest.mark.parametrize(("ends", "expected"), [(True, 0), (False, None)])
def test_each_step_of_the_look_has_its_own_time(tmp_path, ends, expected):
    with (tmp_path / "answer").open("wb") as file:
        process = Process(file, 3, ends)
        assert asyncio.run(wait_while_it_writes(process, file.fileno(), 150.0)) == expected
        assert process.lines == 0


def test_lines_that_are_no_objects_are_skipped(instance, tmp_path):
    environ = instance(count=1)
    module = tmp_path / "modules" / "torch.py"
    module.write_text("print('[1, 2]'); print('3'); print('loading')\n" + module.read_text())
    assert check(environ) == []


def test_gpus_that_torch_does_not_see_are_counted_in_a_warning(instance):
    (warning,) = check(instance(count=7), gpus=8)
    assert warning.startswith("algo-1 has 8 GPUs, but torch sees 7: ")


@pytest.mark.parametrize(
    ("gpus", "instance_type", "variables", "said"),
    [
        (7, "ml.p5.48xlarge", {}, "nvidia-smi shows 7 GPUs, but an ml.p5.48xlarge has 8"),
        (0, "ml.g5.xlarge", {}, "nvidia-smi shows 0 GPUs, but an ml.g5.xlarge has 1"),
        (8, "ml.p5.48xlarge", {}, None),
        (2, "ml.p5.48xlarge", {"CUDA_VISIBLE_DEVICES": "0,1"}, None),
        (1, "ml.x9.large", {}, None),
        (1, "", {}, None),
    ],
)
def test_gpus_that_the_type_has_and_nvidia_smi_does_not_show_are_counted(
    gpus, instance_type, variables, said
):
    warning = missing_gpus("algo-2", gpus, instance_type, variables)
    assert warning is None if said is None else f"algo-2: {said}: " in warning


def test_gpu_that_never_answers_is_named():
    facts = [{"begins": 0, "name": "H100", "capability": [9, 0]}]
    with pytest.raises(ClusterError, match=r"algo-3: GPU 0, H100.*did not end within 150 s"):
        check_products("algo-3", facts, None)


def test_products_are_compared_with_those_of_the_cpu():
    torch = pytest.importorskip("torch")
    assert is_product_right(torch, "cpu")


BUS = "00000000:3B:00.0"


@pytest.mark.parametrize(
    ("scripted", "said"),
    [
        ({"remapped": f"{BUS}, 1, 0"}, "remapped_rows.pending"),
        ({"remapped": f"{BUS}, Yes, No"}, "remapped_rows.pending"),
        ({"remapped": f"{BUS}, 0, 1"}, "remapped_rows.failure"),
        ({"memory": f"{BUS}, Yes, 0"}, "retired_pages.pending"),
        ({"memory": f"{BUS}, [N/A], 3"}, "3 uncorrectable errors"),
    ],
)
def test_faults_of_a_gpus_memory_are_named_by_instance_and_gpu(instance, scripted, said):
    (warning,) = check(instance(count=1, **scripted))
    assert warning.startswith("algo-1: ")
    assert BUS in warning
    assert said in warning
    assert "on other instances" in warning


def test_gpus_without_faults_or_without_the_counters_give_no_warning(instance):
    fine = f"{BUS}, 0, 0\n00000000:5E:00.0, No, No"
    assert check(instance(count=1, remapped=fine, memory=f"{BUS}, No, 0")) == []
    unknown = f"{BUS}, [N/A], [N/A]"
    assert check(instance(count=1, remapped=unknown, memory=unknown)) == []


def test_memory_is_looked_at_without_torch_too(instance):
    assert len(check(instance(count=None, remapped=f"{BUS}, 1, 0"))) == 1


DRIVER = "print('user code runs', flush=True)"


def test_broken_gpu_of_a_worker_ends_the_job_before_user_code_and_names_the_instance(tmp_path):
    variables = put_gpus(tmp_path, count=2, fails={1: "no luck"}, host="algo-2")
    with Cluster(tmp_path, request(2), driver=DRIVER, variables=variables) as cluster:
        assert cluster.start().wait() == {"algo-1": 1, "algo-2": 1}
        expected = "algo-2: GPU 1, Tesla T4, fails its first matrix product: no luck"
        assert expected in cluster.failure("algo-1")
        assert expected in cluster.failure("algo-2")
        assert "user code runs" not in cluster.log("algo-1")


def test_gpu_that_fails_after_all_nodes_are_registered_begins_no_work(tmp_path):
    go = tmp_path / "go"
    variables = put_gpus(tmp_path, count=1, fails={0: "no luck"}, awaits=go, host="algo-2")
    with Cluster(tmp_path, request(2), driver=DRIVER, variables=variables) as cluster:
        cluster.start()
        nodes = [cluster.folder / f"{host}.node" for host in cluster.hosts]
        until(lambda: all(path.exists() for path in [*nodes, tmp_path / "go.algo-1"]))
        go.touch()
        assert cluster.wait() == {"algo-1": 1, "algo-2": 1}
        assert "algo-2: GPU 0" in cluster.failure("algo-1")
        assert "formed" not in [state.name for state in cluster.states()]


def test_instance_with_fewer_gpus_than_its_type_has_warns_in_the_log(tmp_path, monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    variables = put_gpus(tmp_path, count=3)
    kind = "ml.g5.12xlarge"
    with Cluster(
        tmp_path, request(1), driver=DRIVER, variables=variables, current_instance_type=kind
    ) as cluster:
        assert cluster.start().wait() == {"algo-1": 0}
        expected = f"warning: algo-1: nvidia-smi shows 3 GPUs, but an {kind} has 4"
        assert expected in cluster.log("algo-1")


def test_check_that_fails_itself_is_a_warning_and_the_job_goes_on(tmp_path):
    variables = put_gpus(tmp_path, count=1)
    module = tmp_path / "modules" / "torch.py"
    module.write_text("""print('{"torch": "of another program"}')\n""" + module.read_text())
    with Cluster(tmp_path, request(1), driver=DRIVER, variables=variables) as cluster:
        assert cluster.start().wait() == {"algo-1": 0}
        warning = "warning: algo-1: its GPUs could not be checked: KeyError"
        assert 0 <= cluster.log("algo-1").find(warning)
        assert "user code runs" in cluster.log("algo-1")


def test_broken_gpu_of_the_head_ends_the_job_before_user_code(tmp_path):
    variables = put_gpus(tmp_path, count=1, wrong=(0,))
    with Cluster(tmp_path, request(1), driver=DRIVER, variables=variables) as cluster:
        assert cluster.start().wait() == {"algo-1": 1}
        assert "algo-1: GPU 0" in cluster.failure("algo-1")
        assert "user code runs" not in cluster.log("algo-1")


def test_faults_of_memory_are_in_the_log_before_user_code_runs(tmp_path):
    variables = put_gpus(tmp_path, count=1, remapped=f"{BUS}, 1, 0")
    with Cluster(tmp_path, request(2), driver=DRIVER, variables=variables) as cluster:
        assert cluster.start().wait() == {"algo-1": 0, "algo-2": 0}
        log = cluster.log("algo-1")
        warning = f"warning: algo-1: a faulty row of the memory of the GPU {BUS} is replaced only"
        assert 0 <= log.find(warning) < log.find("user code runs")
        assert "warning: algo-2: a faulty row" in cluster.log("algo-2")


def test_broken_gpus_are_left_alone_where_cpus_are_to_compute(tmp_path):
    variables = put_gpus(tmp_path, count=1, wrong=(0,))
    with Cluster(tmp_path, request(1, allow_cpu=True), driver=DRIVER, variables=variables) as job:
        assert job.start().wait() == {"algo-1": 0}


@pytest.mark.parametrize(
    ("driver", "is_used"), [("535.183.01", True), ("580.65.06", False), ("590.10", False)]
)
def test_the_image_s_cuda_library_is_used_on_hosts_with_an_older_driver(tmp_path, driver, is_used):
    compat = tmp_path / "usr/local/cuda/compat"
    compat.mkdir(parents=True)
    (compat / "libcuda.so.580.65.06").touch()
    (compat / "libcuda.so.1").symlink_to("libcuda.so.580.65.06")
    module = tmp_path / "proc/driver/nvidia/version"
    module.parent.mkdir(parents=True)
    module.write_text(
        f"NVRM version: NVIDIA UNIX x86_64 Kernel Module  {driver}  Thu Jul 3\nGCC version: 12\n"
    )
    expected = {"LD_LIBRARY_PATH": f"{compat}:/opt/lib"} if is_used else {}
    assert compat_variables({"LD_LIBRARY_PATH": "/opt/lib"}, tmp_path) == expected
    assert compat_variables({}, tmp_path / "nothing") == {}


def test_a_preloaded_library_that_is_missing_is_dropped_and_one_that_is_there_stays(tmp_path):
    (tmp_path / "there.so").touch()
    there, missing = f"{tmp_path}/there.so", f"{tmp_path}/missing.so"
    assert without_missing_preload({"LD_PRELOAD": f"{there}:{missing}", "A": "b"}) == {"A": "b"}
    for kept in ({"LD_PRELOAD": there}, {"LD_PRELOAD": "libname.so"}, {}):
        assert without_missing_preload(kept) == kept
