"""What child processes are told."""

import importlib
import json
from dataclasses import replace
from pathlib import Path

from raysm import Script, Similarity, TorchScript
from raysm.bootstrap import environment
from raysm.bootstrap.variables import (
    network_variables,
    ray_variables,
    user_variables,
    workload_variables,
)
from tests.support.bootstraps import request, write_training

GROUPS = [
    {"instance_group_name": "work", "instance_type": "ml.p4d.24xlarge", "hosts": ["algo-2", "algo-10"]},
    {"instance_group_name": "head", "instance_type": "ml.t3.medium", "hosts": ["algo-1"]},
]


def told(base, *, host="algo-2", hyperparameters=None, channels=("raysm", "training-data"), **more):
    paths = write_training(
        base, host, ["algo-1", "algo-10", "algo-2"], hyperparameters=hyperparameters, instance_groups=GROUPS, **more
    )
    paths.input_data_config.write_text(json.dumps({name: {} for name in channels}))
    return environment.read({"SAGEMAKER_BASE_DIR": str(base), "TRAINING_JOB_NAME": "a-job"})


def test_user_code_gets_the_toolkit_s_variables(tmp_path):
    found = user_variables(
        told(tmp_path, hyperparameters={"lr": "0.1", "name": "x", "on": "true"}, network_interface_name="eth0"),
        request(3, script="train.py", args=("--a", "b c")),
        Path("/src"),
        cpus=4,
        gpus=2,
    )
    assert json.loads(found["SM_HOSTS"]) == ["algo-1", "algo-2", "algo-10"]
    assert found["SM_CURRENT_HOST"] == "algo-2"
    assert found["SM_CURRENT_INSTANCE_TYPE"] == "ml.p4d.24xlarge"
    assert found["SM_CURRENT_INSTANCE_GROUP"] == "work"
    assert json.loads(found["SM_INSTANCE_GROUPS"]) == ["head", "work"]
    assert json.loads(found["SM_CHANNELS"]) == ["training-data"]
    assert found["SM_CHANNEL_TRAINING-DATA"] == str(tmp_path / "input/data/training-data")
    assert found["SM_MODEL_DIR"] == str(tmp_path / "model")
    assert found["SM_OUTPUT_DATA_DIR"] == str(tmp_path / "output/data")
    assert found["SM_OUTPUT_DIR"] == str(tmp_path / "output")
    assert found["SM_INPUT_DIR"] == str(tmp_path / "input")
    assert found["SM_INPUT_CONFIG_DIR"] == str(tmp_path / "input/config")
    assert (found["SM_NUM_CPUS"], found["SM_NUM_GPUS"]) == ("4", "2")
    assert json.loads(found["SM_HPS"]) == {"lr": 0.1, "name": "x", "on": True}
    assert (found["SM_HP_LR"], found["SM_HP_NAME"], found["SM_HP_ON"]) == ("0.1", "x", "true")
    assert found["SM_NETWORK_INTERFACE_NAME"] == "eth0"
    assert json.loads(found["SM_RESOURCE_CONFIG"])["hosts"] == ["algo-1", "algo-10", "algo-2"]
    assert json.loads(found["SM_TRAINING_ENV"])["current_host"] == "algo-2"
    assert json.loads(found["SM_USER_ARGS"]) == ["--a", "b c"]
    assert found["SM_MODULE_NAME"] == "train"
    assert found["SM_LOG_LEVEL"] == "20"


def test_a_value_that_no_process_could_be_given_is_left_out(tmp_path):
    found = user_variables(
        told(tmp_path, hyperparameters={"long": "x" * 200_000, "a=b": "1", "nul": '"\\u0000"', "odd": '"\\ud800"'}),
        request(3),
        Path("/src"),
        cpus=1,
        gpus=0,
    )
    assert not {"SM_HP_LONG", "SM_HP_A=B", "SM_HP_NUL", "SM_HP_ODD", "SM_HPS", "SM_TRAINING_ENV"} & set(found)
    assert "SM_HOSTS" in found


def test_the_interface_goes_to_nccl_gloo_and_torch_s_rpc_unless_the_user_set_it(tmp_path):
    instance = told(tmp_path, network_interface_name="eth0")
    variables = network_variables(instance, efa=False, inherited={})
    names = ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME")
    assert {name: variables[name] for name in names} == dict.fromkeys(names, "eth0")
    assert "NCCL_SOCKET_IFNAME" not in network_variables(instance, efa=False, inherited={"NCCL_SOCKET_IFNAME": "ib0"})


def test_nccl_tells_hosts_apart_by_the_names_that_the_service_gives_them_since_all_call_themselves_aws(tmp_path):
    assert network_variables(told(tmp_path), efa=False, inherited={})["NCCL_HOSTID"] == "algo-2"


def test_instances_that_share_a_machine_are_one_host_to_nccl(tmp_path):
    instance = replace(told(tmp_path), addresses={"algo-2": "127.0.0.1"})
    assert "NCCL_HOSTID" not in network_variables(instance, efa=False, inherited={})


def test_efa_is_chosen_only_where_a_device_is_attached(tmp_path):
    instance = told(tmp_path)
    assert "FI_PROVIDER" not in network_variables(instance, efa=False, inherited={})
    assert network_variables(instance, efa=True, inherited={})["FI_PROVIDER"] == "efa"
    assert network_variables(instance, efa=True, inherited={})["FI_EFA_USE_DEVICE_RDMA"] == "1"


def test_ray_is_told_the_path_of_the_token_never_the_token():
    found = ray_variables(Path("/payload/token"))
    assert (found["RAY_AUTH_MODE"], found["RAY_AUTH_TOKEN_PATH"]) == ("token", "/payload/token")
    assert "RAY_AUTH_TOKEN" not in found


def test_a_raylet_looks_for_its_store_as_long_as_ray_has_it_but_more_often():
    found = ray_variables(Path("/payload/token"))
    every_ms = int(found["RAY_raylet_client_connect_timeout_milliseconds"])
    attempts = int(found["RAY_raylet_client_num_connect_attempts"])
    # Ray's own: ten attempts, a second apart.
    assert every_ms <= 50
    assert every_ms * attempts == 10 * 1000


def test_what_the_tasks_of_the_similarity_import_is_there():
    told = workload_variables(Similarity(top_k=1))
    assert told["RAY_enable_worker_prestart"] == "1"
    for module in told["RAY_preload_python_modules"].split(","):
        importlib.import_module(module)


def test_a_process_of_the_similarity_is_there_for_the_rows_that_are_sent_next():
    assert int(workload_variables(Similarity(top_k=1))["RAY_idle_worker_killing_time_threshold_ms"]) >= 10_000


def test_only_a_training_s_workers_are_as_quick_as_ray_s_daemons():
    assert workload_variables(TorchScript("train.py"))["RAY_worker_niceness"] == "0"
    assert "RAY_worker_niceness" not in workload_variables(Similarity(top_k=1))


def test_workers_are_started_ahead_where_raysm_knows_that_they_are_wanted():
    assert workload_variables(TorchScript("train.py"))["RAY_enable_worker_prestart"] == "1"
    assert workload_variables(Script("main.py")) == {}
