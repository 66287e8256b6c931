"""A talk with a real kernel: ``python -m tests.support.kernel_talk STEPS ANSWERS``; steps and answers are JSON.

In a process of its own: what Jupyter leaves open of its sockets is none of the tests'. A step is
``{"code": …}`` or ``{"complete": …}``; ``"when"`` is a text of the output upon which a file is
touched (``"touch"``) or the kernel is interrupted (``"interrupt"``).
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]
TIMEOUT_S = 240


def talk(folder, *steps):
    """Have the steps done in turn in a kernel that works in ``folder``; return an answer each."""
    asked, answered = folder / "steps.json", folder / "answers.json"
    asked.write_text(
        json.dumps([step if isinstance(step, dict) else {"code": step} for step in steps])
    )
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "ignore"}
    command = [sys.executable, "-m", "tests.support.kernel_talk", str(asked), str(answered)]
    ended = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=2 * TIMEOUT_S
    )
    assert ended.returncode == 0, ended.stdout[-2000:] + ended.stderr[-4000:]
    return json.loads(answered.read_text())


def main(asked, answered):
    """Talk, and write what was answered."""
    from jupyter_client.kernelspec import KernelSpecManager
    from jupyter_client.manager import KernelManager

    # Not the kernel that is installed, which may be another Python's.
    argv = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    spec = asked.parent / "kernels" / "here" / "kernel.json"
    spec.parent.mkdir(parents=True)
    spec.write_text(json.dumps({"argv": argv, "display_name": "here", "language": "python"}))
    specs = KernelSpecManager(kernel_dirs=[str(spec.parents[1])])
    kernel = KernelManager(kernel_name="here", kernel_spec_manager=specs)
    kernel.start_kernel(cwd=str(asked.parent))
    client = kernel.client()
    client.start_channels()
    try:
        client.wait_for_ready(timeout=TIMEOUT_S)
        answers = [_answer(kernel, client, step) for step in json.loads(asked.read_text())]
    finally:
        client.stop_channels()
        kernel.shutdown_kernel()
    answered.write_text(json.dumps(answers))


def _answer(kernel, client, step):
    if "complete" in step:
        reply = client.complete(step["complete"], reply=True, timeout=TIMEOUT_S)["content"]
        return {"matches": reply["matches"]}
    asked = client.execute(step["code"], allow_stdin=False)
    answer = {"stdout": "", "stderr": "", "results": [], "updates": [], "interrupted_s": None}
    interrupted_s = None
    is_waiting = "when" in step
    while True:
        message = client.get_iopub_msg(timeout=TIMEOUT_S)
        # Threads of earlier cells update their outputs too.
        if message["msg_type"] == "update_display_data":
            answer["updates"].append(message["content"]["data"])
        if message["parent_header"].get("msg_id") != asked:
            continue
        content = message["content"]
        match message["msg_type"]:
            case "stream":
                answer[content["name"]] += content["text"]
            case "execute_result" | "display_data":
                answer["results"].append(content["data"])
            case "status" if content["execution_state"] == "idle":
                break
        if is_waiting and step["when"] in answer["stdout"]:
            is_waiting = False
            interrupted_s = time.monotonic()
            if "touch" in step:
                (Path(step["touch"])).touch()
            else:
                kernel.interrupt_kernel()
    if interrupted_s is not None:
        answer["interrupted_s"] = time.monotonic() - interrupted_s
    # Where the kernel was slow to begin, it was asked several times whether it is there, and
    # answers that too.
    while (message := client.get_shell_msg(timeout=TIMEOUT_S))["parent_header"].get(
        "msg_id"
    ) != asked:
        pass
    reply = message["content"]
    return answer | {
        "status": reply["status"],
        "ename": reply.get("ename"),
        "traceback": reply.get("traceback"),
    }


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
