"""Each example is short, and does what it says, on small settings."""

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet
import pytest

from raysm.core.protocol.result import Manifest
from raysm.features.grid.sources.columns import parse_rows
from raysm.features.grid.sources.source import source_of
from tests.support.homes import in_home, serving
from tests.support.pages import assert_printed, outputs

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"
TIMEOUT_S = 900
"""Of the longest, the pipeline: minutes on two cores, and many more beside others' work."""
RAYSM = (sys.executable, "-c", "from raysm.cli.main import main; import sys; sys.exit(main())")

ALONE = """
import os, sys, torch
sys.path.insert(0, "examples")
from train_vit import train
os.environ |= dict(SM_CHANNEL_TRAIN=os.path.abspath("out/digits/train"))
os.environ |= dict(SM_CHANNEL_VALIDATION=os.path.abspath("out/digits/val"))
os.chdir({folder!r})
torch.set_num_threads(1)
train(dict(lr=2e-3, batch_size=600, epochs=1, size=8, data=1, pipeline=1))
"""


def run(*command):
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=TIMEOUT_S)
    assert ended.returncode == 0, ended.stdout[-4000:] + ended.stderr[-4000:]
    return ended.stdout


def with_campaigns(count, folder):
    """Return a copy of the examples with so many campaigns, each trained on one instance."""
    copy = Path(
        shutil.copytree(EXAMPLES, folder / "examples", ignore=shutil.ignore_patterns("__pycache__"))
    )
    path = copy / "grid" / "campaigns.py"
    text = path.read_text()
    assert text.count("range(13)") == 1
    path.write_text(text.replace("range(13)", f"range({count})"))
    path = copy / "grid" / "run.py"
    text = path.read_text()
    assert text.count("count=2") == 1
    path.write_text(text.replace("count=2", "count=1"))
    return copy


def losses(text):
    return [float(found) for found in re.findall(r"loss(?:[ =]+|\s)([0-9.e-]+)", text)]


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.name)
def test_an_example_has_less_than_100_lines(path):
    assert len(path.read_text().splitlines()) < 100


@pytest.mark.long
@pytest.mark.usefixtures("home")
def test_a_script_for_torchrun_runs_by_torchrun_and_on_a_cluster_by_one_command(tmp_path):
    script = EXAMPLES / "torchrun_digits.py"
    assert "import raysm" not in script.read_text()
    torchrun = (
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        "1",
    )
    said = run(
        *torchrun,
        str(script),
        str(EXAMPLES / "data"),
        "--epochs",
        "2",
        "--model-dir",
        str(tmp_path),
    )
    assert losses(said)[1] < losses(said)[0]
    assert (tmp_path / "digits.pt").exists()
    asked = "train examples/torchrun_digits.py --instances 2 --input data=examples/data".split()
    said = run(*RAYSM, *asked, "--output", str(tmp_path / "out"), "--", "data", "--epochs", "2")
    assert losses(said)[1] < losses(said)[0]
    assert (tmp_path / "out" / "digits.pt").exists()


# None of these frameworks is a package of the tests: they are large, and what runs here is raysm,
# not they.
@pytest.mark.long
@pytest.mark.usefixtures("home")
@pytest.mark.parametrize(
    ("script", "packages", "result", "least"),
    [
        ("trainer_digits.py", ["transformers", "accelerate"], "model.safetensors", 20),
        ("lightning_digits.py", ["lightning"], "digits.pt", 70),
        ("accelerate_digits.py", ["accelerate"], "digits.pt", 70),
    ],
    ids=["Hugging Face's Trainer", "Lightning", "Accelerate"],
)
def test_a_script_of_a_framework_trains_as_it_is_on_two_instances(
    script, packages, result, least, tmp_path
):
    for package in packages:
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed: pip install {package}")
    assert "raysm" not in (EXAMPLES / script).read_text().partition("import argparse")[2]
    asked = f"train examples/{script} --instances 2 --input data=examples/data".split()
    said = run(*RAYSM, *asked, "--output", str(tmp_path / "out"), "--", "data", "--epochs", "2")
    # Once: two workers that each took itself for the only one would both say it, of 1 worker.
    ((right, workers),) = re.findall(r"digits never seen: ([0-9.]+)% right, by (\d)", said)
    assert (float(right) > least, workers) == (True, "2")
    assert (tmp_path / "out" / result).exists()


# That a loop trains on two instances, and what comes back, is shown by test_tutorial.
@pytest.mark.soak
@pytest.mark.usefixtures("home")
def test_digits_are_learned_data_parallel_and_the_model_comes_back(tmp_path):
    said = run(
        sys.executable,
        "examples/digits_cnn.py",
        "--instances",
        "2",
        "--epochs",
        "2",
        "--output",
        str(tmp_path / "out"),
    )
    assert float(re.search(r"digits never seen: ([0-9.]+)%", said)[1]) > 80
    assert Manifest.read(tmp_path / "out").summary in said


# Sweeps are shown by jobs/test_sweep.
@pytest.mark.soak
@pytest.mark.usefixtures("home")
def test_a_sweep_over_digits_finds_a_good_classifier_and_brings_it_back():
    said = run(sys.executable, "examples/sweep.py", "--instances", "2", "--trials", "6")
    assert float(re.search(r"digits never seen: ([0-9.]+)% right", said)[1]) > 70
    assert len(re.findall(r"^\d+ +(?:done|stopped) ", said, re.MULTILINE)) == 6


# How rows become one table is shown by grid/test_row_tables without a job; that two regions really
# predict, by this.
@pytest.mark.soak
@pytest.mark.usefixtures("home")
def test_shards_of_two_regions_are_predicted_where_they_lie_and_are_one_table(tmp_path):
    said = run(
        sys.executable, "examples/batch_regions.py", "--output", str(tmp_path / "all.parquet")
    )
    assert re.findall(r"^digits-\S+: done, a job in (\S+)$", said, re.MULTILINE) == [
        "eu-central-1",
        "us-west-2",
    ]
    assert float(re.search(r"1797 predictions of 2 shards, ([0-9.]+)% right", said)[1]) > 80
    table = pyarrow.parquet.read_table(tmp_path / "all.parquet")
    assert table.column_names[:2] == ["key", "file"]
    # Each record once, in the region of its shard.
    assert table["file"].to_pylist() == [f"{number:04}.png" for number in range(1797)]
    assert table["key"].to_pylist() == ["digits-eu-central-1"] * 899 + ["digits-us-west-2"] * 898


# Nine clusters, more than 100 s of a core. What one job leaves for the next is shown by
# workloads/test_chains, and a training that loses its spot capacity by jobs/test_hostile.
@pytest.mark.soak
@pytest.mark.timeout(1000)
def test_the_pipeline_ends_although_the_capacity_of_its_training_is_taken_away(tmp_path):
    assert len((EXAMPLES / "pipeline.py").read_text().splitlines()) <= 80
    with serving(tmp_path), in_home(tmp_path):
        run(*RAYSM, "local", "up", "--scenario", "examples/pipeline.toml")
        said = run(sys.executable, "examples/pipeline.py")
    assert re.search(r"goes on from the checkpoint of step [1-9]", said), said
    assert "epoch 19: loss" in said
    assert float(re.search(r"([0-9.]+)% of 449 new digits are right", said)[1]) > 85
    assert (
        float(re.search(r"([0-9.]+)% of their nearest embeddings are the same digit", said)[1]) > 75
    )
    assert "3 rows: 3 done" in said
    assert "1348 predictions of 3 shards" in said


# Batches are shown by jobs/test_batch, and an example of them by the lines of text below.
@pytest.mark.soak
@pytest.mark.usefixtures("home")
def test_digits_as_images_are_predicted_in_batches(tmp_path):
    said = run(sys.executable, "examples/batch_digits.py", "--output", str(tmp_path / "out"))
    assert float(re.search(r"1797 predictions; .* learned from ([0-9.]+)% right", said)[1]) > 80


@pytest.mark.long
@pytest.mark.usefixtures("home")
def test_lines_of_text_become_vectors_beside_their_numbers(tmp_path):
    (tmp_path / "lines.txt").write_text("a game of war\nanother game\n")
    said = run(
        sys.executable,
        "examples/batch_text.py",
        str(tmp_path / "lines.txt"),
        "--output",
        str(tmp_path / "out"),
    )
    assert "2 predictions in 1 part" in said
    assert "vector: fixed_size_list<element: float>[256]" in said


@pytest.mark.long
@pytest.mark.usefixtures("home")
def test_prompts_are_answered_in_their_order_though_an_engine_dies(tmp_path):
    # The modules beside a class travel with it: here a stand-in for vLLM.
    shutil.copy(EXAMPLES / "batch_llm.py", tmp_path)
    shutil.copytree(ROOT / "tests" / "support" / "vllm", tmp_path / "vllm")
    prompts = ["a longer prompt of six words", "die once", "two words", "one"] * 3
    lines = [{"id": number, "prompt": prompt} for number, prompt in enumerate(prompts)]
    (tmp_path / "prompts.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    said = run(
        *(sys.executable, tmp_path / "batch_llm.py", tmp_path / "prompts.jsonl"),
        *("--model", tmp_path / "model", "--max-tokens", "5", "--batch-size", "4"),
        *("--output", tmp_path / "out"),
    )
    assert re.search(r"the engine of process \d+ died, and another starts", said)
    assert "4 prompts in " in said
    assert_printed("\n".join(outputs("guides/batch-llm.md")), said)
    table = pyarrow.parquet.read_table(tmp_path / "out" / "predictions")
    assert table["id"].to_pylist() == list(range(12))
    cut = [" ".join(prompt.upper().split()[:5]) for prompt in prompts]
    assert table["answer"].to_pylist() == cut
    assert table["finish_reason"].to_pylist() == ["length", "stop", "stop", "stop"] * 3
    assert table["tokens"].to_pylist() == [5, 2, 2, 1] * 3


# 97 s of a core, the most of all tests: that a hybrid follows one process is held by
# workloads/training's own tests.
@pytest.mark.soak
@pytest.mark.usefixtures("home")
def test_a_vision_transformer_trains_as_a_hybrid_of_pipelines_and_replicas_as_it_does_alone(
    tmp_path,
):
    asked = "examples/train_vit.py --data 2 --pipeline 2 --instances 2 --epochs 1 --batch-size 600 --output".split()
    hybrid = run(sys.executable, *asked, str(tmp_path / "out"))
    assert "replica 2 of 2, pipeline rank 2 of 2" in hybrid
    alone = run(sys.executable, "-c", ALONE.format(folder=str(tmp_path)))
    ((loss, accuracy),) = re.findall(r"^ +1 +([0-9.]+) +([0-9.]+)%$", hybrid, re.MULTILINE)
    ((other, share),) = re.findall(
        r"validation_loss[ =]+([0-9.e-]+).*accuracy[ =]+([0-9.e-]+)", alone
    )
    assert float(loss) == pytest.approx(float(other), abs=1e-4)
    assert float(accuracy) == pytest.approx(float(share) * 100, abs=0.06)


def campaigns(folder):
    """Return the rows that the example's query makes of the example's campaigns."""
    code = (
        "import sys; sys.path.insert(0, 'examples/grid'); import run; from pathlib import Path;"
        "from raysm import Query;"
        "from raysm.features.grid.sources.source import source_of;"
        "from raysm.features.grid.sources.columns import parse_rows;"
        "query = Query(run.QUERY, on=str(run.make(Path(sys.argv[1]))), params=run.PARAMS);"
        "[print(row.key, row.region, row.parameters['lr']) for row in parse_rows(source_of(query).read(100))]"
    )
    return [line.split() for line in run(sys.executable, "-c", code, str(folder)).splitlines()]


def test_the_campaigns_of_the_grid_are_the_new_ones_with_the_typo_and_the_cheapest_region_first(
    tmp_path,
):
    rows = campaigns(tmp_path)
    assert len(rows) == 12
    assert "campaign-12" not in {key for key, _, _ in rows}
    assert [key for key, _, lr in rows if "," in lr] == ["campaign-04"]
    assert [region for _, region, _ in rows[:4]] == ["eu-central-1"] * 3 + ["us-east-1"]


def test_the_array_file_of_the_grid_has_a_campaign_of_each_region(tmp_path):
    campaigns(tmp_path)
    columns = ("key", "region", "input_data", "input_gb", "expected_s", "lr")
    source = source_of(tmp_path / "array.txt").with_columns(columns)
    rows = parse_rows(source.read(100))
    assert [row.region for row in rows] == [
        "us-east-1",
        "us-west-2",
        "eu-west-1",
        "eu-central-1",
    ]
    assert all(Path(row.inputs["data"]).is_dir() for row in rows)


@pytest.mark.soak
def test_campaigns_in_four_regions_are_trained_by_one_command(tmp_path):
    # Each region has one of them or two, and one the typo.
    examples = with_campaigns(5, tmp_path)
    with serving(tmp_path / "home"):
        variables = {**os.environ, "RAYSM_HOME": str(tmp_path / "home")}
        command = (sys.executable, str(examples / "grid" / "run.py"), str(tmp_path / "data"))
        ended = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, timeout=1_500, env=variables
        )
        assert ended.returncode == 0, ended.stdout[-4000:] + ended.stderr[-4000:]
    assert "5 rows: 4 done, 1 failed" in ended.stdout
    assert re.search(r"rate +at most [1-9][0-9,]* images/s combined", ended.stdout)
    # Spot capacity was taken back once, by the scenario's own words, and the row went on from what
    # it had saved.
    assert re.search(
        r"^spot +1 interruption, at most [0-9.]+ USD of work done again", ended.stdout, re.MULTILINE
    )
    assert re.search(
        r"wasted +0\.[0-9]*[1-9][0-9]* USD +saved by spot 0\.[0-9]*[1-9][0-9]* USD", ended.stdout
    )
    # The region without capacity was asked, and its rows are done elsewhere; the typo is told in
    # its program's words.
    assert re.search(r"^eu-central-1 .* CAPACITY", ended.stdout, re.MULTILINE)
    assert "could not convert string to float: '0,5'" in ended.stdout
    page = (tmp_path / "data" / "drives.html").read_text()
    for text in ("4 of 5", "images/s at most", "campaign-04", "wasted", "saved by spot"):
        assert text in page
    # The row says so, and the log of its job that it went on behind what it had saved.
    assert "spot capacity was interrupted once" in page
    logs = [
        path.read_text()
        for path in (tmp_path / "home" / "jobs" / "training@eu-west-1").glob("*/streams/*")
    ]
    assert any(
        re.search("campaign campaign-02 goes on behind epoch [1-9][0-9]+", log) for log in logs
    )
