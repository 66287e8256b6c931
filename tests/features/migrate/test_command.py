"""``raysm migrate``: scripts of the SageMaker SDK and of simple-sagemaker as commands of raysm."""

import shlex

import pytest

import raysm
from raysm.cli.arguments import parse
from raysm.cli.config import read_settings
from raysm.cli.main import main
from raysm.core.request.codec import to_json
from raysm.errors import InvalidRequest
from raysm.features.migrate.api_call import api_differences
from raysm.features.migrate.output import command_lines, python_lines
from raysm.features.migrate.python_file import find_jobs
from raysm.features.migrate.shell_file import find_commands
from raysm.features.migrate.translation import translate

PYTORCH = """
import sagemaker
from sagemaker.inputs import TrainingInput
from sagemaker.pytorch import PyTorch

role = sagemaker.get_execution_role()
BUCKET = "corpus"
common = dict(instance_count=2, instance_type="ml.g5.xlarge")
estimator = PyTorch(
    "fit.py", source_dir="code", role=role, framework_version="2.2", py_version="py310",
    hyperparameters={"epochs": 2 * 5, "rate": choose_rate()}, max_run=2 * 3600, use_spot_instances=True,
    max_wait=3 * 3600, metric_definitions=[{"Name": "loss", "Regex": "loss=(.*)$"}],
    distribution={"torch_distributed": {"enabled": True}}, tags=[{"Key": "team", "Value": "a b"}],
    subnets=["subnet-0a"], security_group_ids=["sg-0b"], profiler_config=Profile(), **common,
)
estimator.set_hyperparameters(seed=7)
estimator.fit({
    "train": TrainingInput(f"s3://{BUCKET}/train", distribution="ShardedByS3Key", input_mode="FastFile"),
    "test": "s3://{}/test".format(BUCKET),
}, wait=False)
"""
PYTORCH_COMMAND = """
raysm train fit.py --on aws --source-dir code --role "$ROLE"
--hyperparameter epochs=10 --hyperparameter rate="$RATE" --hyperparameter seed=7 --max-runtime 7200 --spot
--max-wait 10800 --metric loss='loss=(.*)$' --tag team='a b' --subnet subnet-0a --security-group sg-0b
--instances 2 --instance-type ml.g5.xlarge --input train=s3://corpus/train
--set inputs.train.distribution=ShardedByS3Key --set inputs.train.mode=FastFile --input test=s3://corpus/test
--set hyperparameters_as_args=sdk2
"""
TRAINER = """
from sagemaker.train import ModelTrainer
from sagemaker.train.configs import Compute, InputData, SourceCode, StoppingCondition

trainer = ModelTrainer(
    training_image="123456789012.dkr.ecr.eu-west-1.amazonaws.com/own:1",
    role="arn:aws:iam::123456789012:role/jobs",
    base_job_name="fine_tune",
    source_code=SourceCode(source_dir="src", entry_script="fit.py", requirements="requirements.txt"),
    compute=Compute(instance_type="ml.m5.large", instance_count=1, volume_size_in_gb=50),
    stopping_condition=StoppingCondition(max_runtime_in_seconds=600),
    hyperparameters={"layers": [2, 3]},
)
trainer.train(input_data_config=[InputData(channel_name="rows", data_source="s3://corpus/rows")])
"""
TRAINER_COMMAND = """
raysm run fit.py --on aws
--image 123456789012.dkr.ecr.eu-west-1.amazonaws.com/own:1 --role arn:aws:iam::123456789012:role/jobs
--name fine-tune --source-dir src --instance-type ml.m5.large --instances 1 --volume-gb 50 --max-runtime 600
--hyperparameter layers='[2, 3]' --input rows=s3://corpus/rows --hyperparameters-as-args
"""
PROCESSOR = """
from sagemaker.processing import ProcessingInput, ProcessingOutput, ScriptProcessor

ScriptProcessor(
    image_uri="123456789012.dkr.ecr.eu-west-1.amazonaws.com/own:1", command=["python3"],
    role="arn:aws:iam::123456789012:role/jobs", instance_type="ml.m5.large", instance_count=1,
).run(
    code="clean.py",
    inputs=[ProcessingInput(source="s3://corpus/raw", destination="/opt/ml/processing/input/raw")],
    outputs=[ProcessingOutput(source="/opt/ml/processing/clean", destination="s3://corpus/clean")],
    arguments=["--year", "2026"],
)
"""
PROCESSOR_COMMAND = """
raysm run clean.py --on aws --kind processing
--image 123456789012.dkr.ecr.eu-west-1.amazonaws.com/own:1 --role arn:aws:iam::123456789012:role/jobs
--instance-type ml.m5.large --instances 1 --input raw=s3://corpus/raw --output-uri s3://corpus/clean -- --year 2026
"""
SSM = r"""
cd code && ssm run -p project -t first -e fit.py --it ml.m5.large --ic 2 --max_run_mins 15 -i ./rows ShardedByS3Key \
    --iit before prepare output --md loss 'loss=(.*)' --tag team=a --rate 0.1 -o "$OUT" -- --epochs 3
# ssm run -p project -t never -e fit.py
ssm shell -p project -t second --dir_files . --cmd_line "make data && ls \$SM_CHANNEL_ROWS"
"""
SSM_COMMANDS = [
    """
raysm run fit.py --on aws --role "$ROLE" --input data=./rows --set inputs.data.distribution=ShardedByS3Key
--input before=job:prepare/data --project project --name first --instance-type ml.m5.large --instances 2
--max-runtime 900 --metric loss='loss=(.*)' --tag team=a --hyperparameter rate=0.1 --output "$OUT"
--hyperparameters-as-args -- --epochs 3
""",
    "raysm run --project project --name second --source-dir . -- bash -c 'make data && ls $SM_CHANNEL_ROWS'",
]


def jobs_of(text):
    return [translate(job) for job in find_jobs(text, "launch.py")]


def words_of(job):
    return shlex.split(" ".join(command_lines(job)))


@pytest.mark.parametrize(
    ("text", "command"),
    [(PYTORCH, PYTORCH_COMMAND), (TRAINER, TRAINER_COMMAND), (PROCESSOR, PROCESSOR_COMMAND)],
)
def test_a_job_of_the_sdk_becomes_a_command_with_its_options(text, command):
    (job,) = jobs_of(text)
    assert words_of(job) == shlex.split(command)


def test_the_commands_of_ssm_in_a_shell_script_become_commands_of_raysm():
    commands = [words_of(translate(job)) for job in find_commands(SSM)]
    assert commands == list(map(shlex.split, SSM_COMMANDS))


@pytest.mark.parametrize("text", [TRAINER, PROCESSOR])
def test_the_command_and_the_python_ask_for_the_same_request(text, tmp_path, monkeypatch):
    (job,) = jobs_of(text)
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".git").mkdir()
    settings = read_settings(parse(words_of(job)[1:]))
    given = {}

    class Fake:
        def __getattr__(self, name):
            return getattr(raysm, name)

        def submit(self, workload, **options):
            given.update(options, workload=workload)

    code = "\n".join(python_lines(job)).partition("\njob.logs")[0]
    exec(code, {"raysm": Fake()})
    target = given.pop("on")
    assert to_json(given.pop("workload")) == to_json(settings.workload())
    assert target == settings.target()
    assert given["cluster"] == settings.options()["cluster"]


def test_what_is_not_constant_is_named_with_its_line_and_keeps_its_expression_in_python():
    (job,) = jobs_of(PYTORCH)
    named = {(name, value.line, value.expression) for name, value in job.unknown}
    assert named == {
        ("aws.role", 6, "sagemaker.get_execution_role()"),
        ("hyperparameters.rate", 11, "choose_rate()"),
    }
    assert "'rate': choose_rate()" in "\n".join(python_lines(job))


def test_a_name_that_a_branch_or_a_loop_assigns_is_not_constant():
    text = TRAINER.replace('instance_type="ml.m5.large"', "instance_type=kind")
    branch = "kind = 'ml.m5.large'\nif large():\n    kind = 'ml.m5.4xlarge'\n"
    (job,) = jobs_of(branch + text)
    assert [(name, value.line) for name, value in job.unknown] == [("cluster.instance_type", 2)]


def test_a_step_of_a_pipeline_starts_its_processor():
    step = PROCESSOR.replace(
        ").run(\n    code", ")\nstep = ProcessingStep(\n    name='Clean', processor=processor, code"
    )
    step = step.replace("ScriptProcessor(\n", "processor = ScriptProcessor(\n").replace(
        "arguments=", "job_arguments="
    )
    (job,) = jobs_of(f"from sagemaker.workflow.steps import ProcessingStep\n{step}")
    assert words_of(job) == shlex.split(PROCESSOR_COMMAND)


def test_a_table_that_a_branch_changes_is_not_constant():
    text = TRAINER.replace('{"layers": [2, 3]}', "table")
    (job,) = jobs_of(f"table = {{}}\ntable['a'] = 1\n{text}")
    assert job.options["hyperparameters"] == {"a": 1}
    (job,) = jobs_of(f"table = {{}}\nif is_test():\n    table['a'] = 1\n{text}")
    assert [name for name, _ in job.unknown] == ["hyperparameters"]


def test_arguments_without_an_equal_are_named_each_with_a_reason_or_a_substitute():
    (job,) = jobs_of(PYTORCH)
    assert {name for name, _ in job.remarks} == {
        "framework_version",
        "py_version",
        "profiler_config",
    }
    (job,) = jobs_of(PROCESSOR)
    assert job.remarks == [("output 1: source", "write into $SM_MODEL_DIR")]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (PYTORCH.replace("PyTorch", "TensorFlow").replace("pytorch", "tensorflow"), "TensorFlow"),
        (
            "import sagemaker\nfrom sagemaker import image_uris\n"
            "sagemaker.estimator.Estimator(image_uris.retrieve('xgboost', 'eu-west-1'), 'role', 1).fit()",
            "built-in algorithms",
        ),
    ],
)
def test_a_job_that_raysm_cannot_run_says_why(text, why):
    (job,) = jobs_of(text)
    assert why in job.impossible


def test_the_api_calls_differ_in_what_raysm_adds_and_not_in_what_both_name():
    (job,) = jobs_of(TRAINER)
    api, differing = api_differences(job)
    fields = {path for path, _, _ in differing}
    assert api == "CreateTrainingJob"
    assert {"InputDataConfig[raysm]", "AlgorithmSpecification.ContainerEntrypoint"} <= fields
    assert not {"ResourceConfig.InstanceType", "InputDataConfig[rows]", "RoleArn"} & fields
    assert "AlgorithmSpecification.TrainingImage" not in fields


def test_classes_of_the_same_name_of_other_packages_are_no_jobs(tmp_path, capsys):
    file = tmp_path / "train.py"
    file.write_text("from mine import ModelTrainer\nModelTrainer(role='r').train()\n")
    assert main(["migrate", str(file)]) == 2
    assert "starts no job" in capsys.readouterr().err


def test_a_script_is_read_and_never_run(tmp_path, capsys):
    file = tmp_path / "launch.py"
    file.write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n{TRAINER}")
    assert main(["migrate", str(file)]) == 0
    assert capsys.readouterr().out.startswith(
        "# ModelTrainer, line 6 of launch.py\nraysm run fit.py"
    )
    assert not (tmp_path / "ran").exists()


def test_a_script_of_python_2_is_refused_with_its_line(tmp_path, capsys):
    file = tmp_path / "launch.py"
    file.write_text("import sagemaker\nprint 'hello'\n")
    assert main(["migrate", str(file)]) == 2
    assert "line 2" in capsys.readouterr().err


@pytest.mark.parametrize(
    "value",
    [
        '"x" * 1000000000000',
        "[0] * 1000000000000",
        '"{bucket}/x".format("a")',
        '"{} {}".format("a")',
        '"{0.y}".format(1)',
    ],
)
def test_an_expression_that_would_take_memory_or_fail_is_not_constant(value):
    text = f"from sagemaker.pytorch import PyTorch\nPyTorch('fit.py', output_path={value})\n"
    [job] = map(translate, find_jobs(text, "launch.py"))
    assert [(name, found.line) for name, found in job.unknown] == [("output_uri", 2)]


def test_a_command_of_ssm_whose_option_lacks_a_value_is_refused_with_its_line():
    with pytest.raises(InvalidRequest, match="line 2: --iis of ssm lacks a value"):
        find_commands("set -e\nssm run -p a -t b -e fit.py --iis data --md loss\n")


def test_a_command_of_ssm_ends_before_the_next_command_and_has_no_comments():
    [job] = find_commands("ssm run -e fit.py --no_spot `# for now` --rate 1 > log.txt & wait\n")
    assert words_of(translate(job)) == shlex.split(
        "raysm run fit.py --hyperparameter rate=1 --hyperparameters-as-args"
    )


@pytest.mark.parametrize(
    "value", ['f"{1:>1000000000}"', "ParameterString(name='Uri', default_value='s3://corpus')"]
)
def test_a_format_or_a_parameter_of_a_pipeline_is_not_constant(value):
    names = "from sagemaker.workflow.parameters import ParameterString\n"
    text = f"{names}from sagemaker.pytorch import PyTorch\nPyTorch('fit.py', output_path={value})\n"
    (job,) = jobs_of(text)
    assert [name for name, _ in job.unknown] == ["output_uri"]


def test_a_switch_that_is_not_constant_is_set_by_its_option():
    text = "from sagemaker.pytorch import PyTorch\nPyTorch('fit.py', use_spot_instances=spot())\n"
    (job,) = jobs_of(text)
    assert command_lines(job) == ["raysm run fit.py", '--set limits.spot="$SPOT"']


def test_hyperparameters_from_elsewhere_are_not_constant():
    text = "from sagemaker.pytorch import PyTorch\njob = PyTorch('fit.py')\njob.set_hyperparameters(**read())\n"
    (job,) = jobs_of(text)
    assert [(name, value.line) for name, value in job.unknown] == [("hyperparameters", 3)]
