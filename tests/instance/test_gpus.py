"""GPUs that torch cannot use end the job; an image's newer CUDA library takes the place of the host's."""

import os

import pytest

from raysm.errors import InvalidConfig
from raysm.instance.children import Children
from raysm.instance.entrypoint import without_missing_preload
from raysm.instance.gpus import check_torch_sees_gpus, compat_variables
from tests.support.own_process import run_apart

pytest.importorskip("torch")

FAKE_TORCH = """
class cuda:
    init = staticmethod(lambda: {init})
    device_count = staticmethod(lambda: {count})
__version__ = "2.9.1+cu130"
class version:
    cuda = "13.0"
"""


@pytest.fixture
def image(tmp_path, monkeypatch):
    """Return the environment of an instance with nvidia-smi and a scripted torch."""
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "nvidia-smi").write_text("#!/bin/sh\necho 'GPU 0: Tesla T4 (UUID: GPU-1)'\n")
    (tools / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")

    def environment(count, init="None"):
        (tmp_path / "torch.py").write_text(FAKE_TORCH.format(count=count, init=init))
        return os.environ | {"PYTHONPATH": str(tmp_path)}

    return environment


def check(environ, gpus=1):
    async def look():
        children = Children()
        try:
            await check_torch_sees_gpus("algo-1", gpus, environ, children)
        finally:
            children.close()
        # The only reaper has no doubt about the child: it was no orphan.
        assert children.reaped == 0

    run_apart(look)


def test_gpus_that_torch_does_not_see_end_the_job_with_driver_cuda_and_remedy(image):
    old = image(
        0, init="(_ for _ in ()).throw(RuntimeError('The NVIDIA driver is too old (found 12020)'))"
    )
    with pytest.raises(
        InvalidConfig, match=r"algo-1 .* 1 GPU.* 2\.9\.1\+cu130 .* CUDA 13\.0"
    ) as raised:
        check(old)
    assert "driver is too old (found 12020)" in str(raised.value)
    assert "--allow-cpu" in raised.value.remedy


def test_gpus_that_torch_sees_and_instances_without_gpus_pass(image):
    check(image(1))
    check(image(0), gpus=0)


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
