"""The quotas of a job: by type, number, spot or not, and API."""

from raysm.client.doctor import Intent, State
from raysm.client.doctor.capacity import needs_of
from raysm.request import Cluster, InstanceGroup, Limits


def quotas(account, cluster, **more):
    return account.findings(Intent(cluster=cluster, **more))["quota"]


def test_a_quota_is_compared_with_the_number_of_instances(account):
    assert quotas(account, Cluster("ml.m5.large", count=4))[0].state is State.GOOD
    (finding,) = quotas(account, Cluster("ml.m5.large", count=5))
    assert finding.state is State.BAD
    assert "request-service-quota-increase" in finding.remedy
    assert "--desired-value 5" in finding.remedy


def test_spot_and_processing_have_quotas_of_their_own(account):
    one = Cluster("ml.m5.large")
    assert quotas(account, one, limits=Limits(spot=True))[0].state is State.BAD
    assert quotas(account, Cluster("ml.m5.large", count=3), kind="processing")[0].state is State.BAD
    assert quotas(account, one, kind="processing")[0].state is State.GOOD


def test_what_is_not_applied_is_looked_up_among_the_defaults(account):
    account.quotas.defaults["ml.c5.large for training job usage"] = 7
    (finding,) = quotas(account, Cluster("ml.c5.large"))
    assert finding.text == "ml.c5.large for training job usage: 7, the job takes 1"


def test_an_applied_value_wins_over_the_default(account):
    account.quotas.defaults["ml.m5.large for training job usage"] = 100
    assert quotas(account, Cluster("ml.m5.large", count=5))[0].state is State.BAD


def test_a_quota_that_nobody_lists_is_unknown(account):
    assert quotas(account, Cluster("ml.c5.large"))[0].state is State.UNKNOWN


def test_who_may_not_list_quotas_could_not_look(account):
    account.refuse("list_service_quotas")
    assert account.findings()["quota"][0].state is State.UNKNOWN


def test_without_an_instance_type_nothing_can_be_compared(account):
    assert "--instance-type" in account.findings(Intent())["quota"][0].remedy


def test_groups_of_one_type_are_counted_together_and_warm_pools_beside(account):
    groups = (InstanceGroup("a", "ml.m5.large", 1), InstanceGroup("b", "ml.m5.large", 2))
    needs = {need.quota: need.amount for need in needs_of(account.case(Intent(cluster=Cluster(groups=groups))))}
    assert needs["ml.m5.large for training job usage"] == 3
    assert needs["Number of instances across all training jobs"] == 3
    warm = Intent(cluster=Cluster("ml.m5.large", count=2, keep_alive_s=60))
    assert "ml.m5.large for training warm pool usage" in {need.quota for need in needs_of(account.case(warm))}


def test_the_quotas_of_a_whole_account_and_of_the_runtime_count_where_they_are_listed(account):
    account.quotas.applied["Number of instances across all training jobs"] = 1
    account.quotas.applied["Longest run time for a training job"] = 3600
    found = quotas(account, Cluster("ml.m5.large", count=2))
    assert [finding.state for finding in found] == [State.GOOD, State.BAD, State.BAD]


def test_a_training_plan_has_its_capacity(account):
    plan = "arn:aws:sagemaker:eu-west-1:123456789012:training-plan/p"
    assert quotas(account, Cluster("ml.m5.large", training_plan=plan))[0].state is State.UNKNOWN


def test_of_a_choice_of_types_one_whose_quota_suffices_is_enough(account):
    account.quotas.applied["ml.c5.large for training job usage"] = 0
    account.quotas.applied["ml.g5.xlarge for training job usage"] = 2

    def states(*types):
        cluster = Cluster(types[0], count=2, alternatives=types[1:])
        return [(finding.state, finding.needed) for finding in quotas(account, cluster)]

    assert states("ml.c5.large") == [(State.BAD, True)]
    assert states("ml.c5.large", "ml.g5.xlarge") == [(State.BAD, False), (State.GOOD, True)]
    # Of one that nobody lists it is not known: it may do.
    assert states("ml.c5.large", "ml.p3.2xlarge") == [(State.BAD, False), (State.UNKNOWN, True)]
    account.quotas.applied["ml.g5.xlarge for training job usage"] = 1
    assert states("ml.c5.large", "ml.g5.xlarge") == [(State.BAD, True), (State.BAD, True)]
