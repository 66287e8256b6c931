"""Pages for those who come from another tool: complete by the tool's own options, and run as they stand."""

import re
from pathlib import Path

import pytest

from raysm.errors import InvalidRequest
from raysm.training import Parallel
from tests.support.pages import assert_printed, outputs, run_page

GUIDES = Path(__file__).parents[1] / "docs" / "guides"
PAGES = sorted(GUIDES.glob("come-from-*.md"))

# simple-sagemaker 0.9.24, each option of "ssm run" with its short form.
SSM_RUN = """
--project_name -p, --task_name -t, --prefix, --bucket_name -b, --source_dir -s, --entry_point -e, --dependencies -d,
--instance_type --it, --instance_count --ic, --volume_size -v, --no_spot, --use_spot_instances, --max_wait_mins,
--max_run_mins, --aws_repo_name --ar, --repo_name --rn, --image_tag, --docker_file_path_or_content --df, --framework -f,
--framework_version --fv, --py_version --pv, --input_path -i, --model_uri, --input_s3 --iis, --input_task --iit,
--force_running --fr, --distribution, --clean_state --cs, --keep_state --ks, --metric_definitions --md, --tag,
--output_path -o, --download_state, --download_model, --download_output
"""

# The model parallel library 2, by the reference of its configuration; the value asks for the
# option.
SMP_2 = {
    "hybrid_shard_degree": 4,
    "sm_activation_offloading": True,
    "activation_loading_horizon": 2,
    "fsdp_cache_flush_warnings": True,
    "allow_empty_shards": True,
    "tensor_parallel_degree": 2,
    "context_parallel_degree": 2,
    "expert_parallel_degree": 2,
    "random_seed": 1,
}

# launcher.py of sample-ray-on-amazon-sagemaker-training-jobs.
LAUNCHER = """
-e --entrypoint, --head-instance-group, --head-num-cpus, --head-num-gpus, --include-dashboard, --launch-prometheus,
--prometheus-path, --wait-shutdown
"""


def first_cells(page, heading):
    """Return the names in the first column of the table below ``heading``, and the second column, by row."""
    table = (
        (GUIDES / page)
        .read_text()
        .partition(heading)[2]
        .partition("| --- | --- |\n")[2]
        .partition("\n\n")[0]
    )
    rows = [line.strip("| ").split(" | ", 1) for line in table.splitlines()]
    return [(re.findall(r"`(-*[\w-]+)`", first), second) for first, second in rows]


def options(text):
    return sorted(tuple(option.split()) for option in text.replace("\n", " ").split(","))


@pytest.mark.parametrize(
    ("page", "heading", "expected"),
    [
        ("come-from-simple-sagemaker.md", "## Options of `ssm run`", SSM_RUN),
        ("come-from-ray.md", "| argument of `launcher.py`", LAUNCHER),
    ],
)
def test_the_table_has_each_option_of_the_other_tool(page, heading, expected):
    named = [names for names, _ in first_cells(page, heading) if names and names != ["--epochs"]]
    assert sorted(map(tuple, named)) == options(expected)


def test_options_of_the_model_parallel_library_are_converted_or_refused_as_its_page_says():
    told = {
        name: second
        for names, second in first_cells("come-from-smdistributed.md", "version 2")
        for name in names
    }
    assert told.keys() == SMP_2.keys()
    for name, value in SMP_2.items():
        if told[name].startswith("refused"):
            with pytest.raises(InvalidRequest, match=f"{name}={value!r}"):
                Parallel.from_smdistributed({name: value})
        else:
            assert Parallel.from_smdistributed({name: value}) != Parallel(shard=None)


def test_each_page_shows_both_sides_and_what_is_not_here():
    for page in PAGES:
        text = page.read_text()
        assert "not here" in text, page
        assert "```bash" in text, page
        assert "```py\n" in text or "```sh\n" in text, page


def test_the_python_of_each_page_is_python():
    for page in PAGES:
        for code in re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL):
            compile(code, page.name, "exec")


ALWAYS = "come-from-simple-sagemaker"
"""The shortest. What the commands of the others do has tests of its own, and test_docs parses them:
these pages join the soak tests."""


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(
            page,
            id=page.stem,
            marks=pytest.mark.long if page.stem == ALWAYS else pytest.mark.soak,
        )
        for page in PAGES
    ],
)
def test_the_page_runs_as_it_stands(page, home, tmp_path):
    assert_printed("\n".join(outputs(page)), run_page(page, tmp_path, home))
