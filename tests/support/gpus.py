"""An instance with GPUs, simulated: a scripted ``nvidia-smi``, and a scripted torch."""

import os

TORCH = """
import atexit, os, signal, time

COUNT, PROBLEM, NAME, CAPABILITY = {count!r}, {problem!r}, {name!r}, {capability!r}
FAILS, WRONG, KILLS, AWAITS = {fails!r}, {wrong!r}, {kills!r}, {awaits!r}
if AWAITS:
    mark = AWAITS + "." + os.environ["SM_CURRENT_HOST"]
    atexit.register(lambda: open(mark, "w").close())
if {host!r} not in (None, os.environ.get("SM_CURRENT_HOST")):
    FAILS, WRONG, KILLS, AWAITS = {{}}, (), (), None
__version__ = "2.9.1+cu130"

class version:
    cuda = "13.0"

class cuda:
    @staticmethod
    def init():
        if PROBLEM:
            raise RuntimeError(PROBLEM)
    device_count = staticmethod(lambda: COUNT)
    get_arch_list = staticmethod(lambda: ["sm_75", "sm_80", "sm_90", "compute_120"])
    get_device_name = staticmethod(lambda number: NAME)
    get_device_capability = staticmethod(lambda number: CAPABILITY)

class Tensor:
    def __init__(self, gpu=None):
        self.gpu = gpu
    def __mod__(self, other):
        return self
    def reshape(self, *shape):
        return self
    float = cpu = lambda self: self
    def to(self, device):
        return Tensor(int(device.removeprefix("cuda:")))
    def __matmul__(self, other):
        while AWAITS and not os.path.exists(AWAITS):
            time.sleep(0.02)
        if self.gpu in KILLS:
            os.kill(os.getpid(), signal.SIGBUS)
        if self.gpu in FAILS:
            raise RuntimeError(FAILS[self.gpu])
        return self

def arange(count):
    return Tensor()

def equal(one, other):
    return one.gpu not in WRONG
"""

SMI = """#!/bin/sh
case "$1" in
    --list-gpus) i=0; while [ $i -lt {count} ]; do echo "GPU $i: {name} (UUID: GPU-$i)"; i=$((i+1)); done ;;
    --query-remapped-rows=*) echo '{remapped}' ;;
    --query-gpu=*) echo '{memory}' ;;
    *) exit 2 ;;
esac
"""


def put_gpus(
    folder,
    *,
    count,
    problem="",
    name="Tesla T4",
    capability=(7, 5),
    fails=None,
    wrong=(),
    kills=(),
    awaits=None,
    host=None,
    remapped="",
    memory="",
):
    """Put both into ``folder``, and return the variables by which a program finds them.

    Args:
        count: The number of GPUs that torch sees; None is a torch that cannot be imported.
        problem: Why CUDA does not start.
        fails: What the first product of a GPU raises, by its number.
        wrong: The GPUs whose product is wrong.
        kills: The GPUs whose product ends the process.
        awaits: A file for which the first product waits. Each instance whose look ends leaves a
            file of this name with the instance's as its suffix.
        host: The only instance whose GPUs are broken; None is all.
        remapped: What nvidia-smi knows of rows, as CSV.
        memory: What it knows of pages and errors.
    """
    tools = folder / "bin"
    tools.mkdir(exist_ok=True)
    smi = tools / "nvidia-smi"
    smi.write_text(SMI.format(count=count or 1, name=name, remapped=remapped, memory=memory))
    smi.chmod(0o755)
    modules = folder / "modules"
    modules.mkdir(exist_ok=True)
    scripted = TORCH.format(
        count=count,
        problem=problem,
        name=name,
        capability=capability,
        fails=fails or {},
        wrong=wrong,
        kills=kills,
        awaits=awaits and str(awaits),
        host=host,
    )
    missing = 'raise ImportError("this image has no torch")'
    (modules / "torch.py").write_text(missing if count is None else scripted)
    return {"PATH": f"{tools}:{os.environ['PATH']}", "PYTHONPATH": str(modules)}
