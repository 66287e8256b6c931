"""What child processes are told."""

import json
from pathlib import Path

from raysm.instance import environment
from raysm.instance.variables import network_variables, user_variables
from tests.support.bootstraps import request, write_training

GROUPS = [
    {
        "instance_group_name": "work",
        "instance_type": "ml.p4d.24xlarge",
        "hosts": ["algo-2", "algo-10"],
    },
    {"instance_group_name": "head", "instance_type": "ml.t3.medium", "hosts": ["algo-1"]},
]


def told(base, *, host="algo-2", hyperparameters=None, channels=("raysm", "training-data"), **more):
    paths = write_training(
        base,
        host,
        ["algo-1", "algo-10", "algo-2"],
        hyperparameters=hyperparameters,
        instance_groups=GROUPS,
        **more,
    )
    paths.input_data_config.write_text(json.dumps({name: {} for name in channels}))
    return environment.read({"SAGEMAKER_BASE_DIR": str(base), "TRAINING_JOB_NAME": "a-job"})


def test_a_value_that_no_process_could_be_given_is_left_out(tmp_path):
    found = user_variables(
        told(
            tmp_path,
            hyperparameters={
                "long": "x" * 200_000,
                "a=b": "1",
                "nul": '"\\u0000"',
                "odd": '"\\ud800"',
            },
        ),
        request(3),
        Path("/src"),
        cpus=1,
        gpus=0,
    )
    assert not {
        "SM_HP_LONG",
        "SM_HP_A=B",
        "SM_HP_NUL",
        "SM_HP_ODD",
        "SM_HPS",
        "SM_TRAINING_ENV",
    } & set(found)
    assert "SM_HOSTS" in found


def test_the_interface_goes_to_nccl_gloo_and_torch_s_rpc_unless_the_user_set_it(tmp_path):
    instance = told(tmp_path, network_interface_name="eth0")
    variables = network_variables(instance, efa=False, inherited={})
    names = ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME")
    assert {name: variables[name] for name in names} == dict.fromkeys(names, "eth0")
    assert "NCCL_SOCKET_IFNAME" not in network_variables(
        instance, efa=False, inherited={"NCCL_SOCKET_IFNAME": "ib0"}
    )


def test_nccl_tells_hosts_apart_by_the_names_that_the_service_gives_them_since_all_call_themselves_aws(
    tmp_path,
):
    assert network_variables(told(tmp_path), efa=False, inherited={})["NCCL_HOSTID"] == "algo-2"


def test_efa_is_chosen_only_where_a_device_is_attached(tmp_path):
    instance = told(tmp_path)
    assert "FI_PROVIDER" not in network_variables(instance, efa=False, inherited={})
    assert network_variables(instance, efa=True, inherited={})["FI_PROVIDER"] == "efa"
    assert network_variables(instance, efa=True, inherited={})["FI_EFA_USE_DEVICE_RDMA"] == "1"
