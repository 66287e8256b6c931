"""A script that checkpoints in its working folder, interrupted on spot capacity and by a failure."""

import shutil
from pathlib import Path

import pytest

import raysm
from tests.jobs.test_submit import post, until

pytestmark = pytest.mark.usefixtures("home")

SCRIPT = Path(__file__).parents[1] / "support" / "checkpointing_script.py"


@pytest.fixture
def script(tmp_path):
    (tmp_path / "labels").mkdir()
    (tmp_path / "labels" / "names.txt").write_text("cat dog")
    (tmp_path / "class_names.py").write_text("def parse(text):\n    return text.split()\n")
    shutil.copy(SCRIPT, tmp_path / "main.py")
    return {"script": "main.py", "source_dir": str(tmp_path)}


def texts(job):
    return [line.text for line in job.lines()]


@pytest.mark.long
@pytest.mark.parametrize("kind", [raysm.Script, raysm.TorchScript])
def test_an_interrupted_spot_job_goes_on_from_the_checkpoint_in_its_working_folder(
    script, home, kind
):
    args = ("--resume", "checkpoint.pth.tar", "--pause-at", "2")
    job = raysm.submit(kind(**script, args=args, in_state=True), limits=raysm.Limits(spot=True))
    until(lambda: any("paused" in text for text in texts(job)))
    post(home, f"/raysm/jobs/{job.name}/interrupt")
    job.result(timeout=300)
    said = texts(job)
    assert any("=> loaded checkpoint 'checkpoint.pth.tar' (epoch 2)" in text for text in said), said
    assert sum("epoch 0 done" in text for text in said) == 1
    assert any("labels: ['cat', 'dog']" in text for text in said)


@pytest.mark.long
def test_without_it_the_checkpoint_is_in_the_result_and_with_it_resume_finds_it(script):
    kept = raysm.submit(raysm.Script(**script, args=("--epochs", "1")), name="result")
    assert "checkpoint.pth.tar" in {file.name for file in kept.result(timeout=300).manifest.files}
    dropped = raysm.submit(
        raysm.Script(**script, args=("--epochs", "1"), drop_files=True), name="dropped"
    )
    assert dropped.result(timeout=300) is None
    assert any(
        "working folder of algo-1 are lost now: checkpoint.pth.tar" in text
        for text in texts(dropped)
    )
    for run in (1, 2):
        workload = raysm.Script(
            **script,
            args=("--epochs", str(run), "--resume", "{state}/checkpoint.pth.tar"),
            in_state=True,
        )
        job = raysm.submit(workload, name="kept", resume=run == 2)
        assert job.wait(timeout=300) == "Completed", texts(job)
    assert any("(epoch 1)" in text for text in texts(job))
    assert not any("are lost now" in text for text in texts(job))


OF_RANK_0 = """
import os, pathlib, sys
if sys.argv[1:]:
    import torch.distributed
folder, rank = pathlib.Path(os.environ["RAYSM_STATE"]), os.environ["RANK"]
files = {path.name: path.read_text() for path in sorted(folder.glob("*.txt"))} if folder.is_dir() else {}
print("finds", files, flush=True)
if sys.argv[1:]:
    # Rank 0 fails after rank 1 has printed: torchrun stops the others as soon as one fails.
    torch.distributed.init_process_group("gloo")
    torch.distributed.barrier()
if rank == "0":
    folder.mkdir(parents=True, exist_ok=True)
    folder.joinpath("last.txt").write_text(str(int(files.get("last.txt", 0)) + 1))
    if sys.argv[1:] and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
        sys.exit("rank 0 fails once")
"""


@pytest.mark.long
def test_instances_without_the_state_of_rank_0_are_named_and_get_it_with_share_state(tmp_path):
    path = tmp_path / "main.py"
    path.write_text(OF_RANK_0)
    said = []
    for run, fields in enumerate(
        [{}, {}, {"share_state": True, "args": ("fail",), "max_restarts": 1}]
    ):
        workload = raysm.TorchScript(str(path), **fields)
        job = raysm.submit(workload, name="kept", resume=run > 0, cluster=raysm.Cluster(count=2))
        assert job.wait(timeout=300) == "Completed", texts(job)
        said.append([text for text in texts(job) if "finds" in text or "the same state" in text])
    first, second, third = said
    assert sorted(first) == ["[rank 0] finds {}", "[rank 1] finds {}"]
    (difference,) = [text for text in second if "the same state" in text]
    assert "algo-1 (rank 0) has last.txt, algo-2 has none" in difference
    assert "[rank 1] finds {}" in second
    assert sorted(third) == [
        f"[rank {rank}] finds {{'last.txt': '{epoch}'}}" for rank in (0, 1) for epoch in (2, 3)
    ]
