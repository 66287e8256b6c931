"""What the doctor finds, and the remedy that it names for each."""

from botocore.exceptions import ClientError, NoCredentialsError

from raysm.cli.doctor import aws_checks, local_checks, train_check
from raysm.client.service import Service
from raysm.request import AWS

ROLE = "arn:aws:iam::123456789012:role/jobs"


class Clients:
    """Answers like AWS, with what the test says of the account."""

    def __init__(self, *, credentials=True, trust="sagemaker.amazonaws.com", quota=4.0):
        self.credentials, self.trust, self.quota = credentials, trust, quota

    def __call__(self, name):
        return self

    def get_caller_identity(self):
        if not self.credentials:
            raise NoCredentialsError
        return {"Arn": "arn:aws:iam::123456789012:user/me", "Account": "123456789012"}

    def get_role(self, **call):
        if call["RoleName"] != "jobs":
            raise ClientError({"Error": {"Code": "NoSuchEntity", "Message": "no such role"}}, "GetRole")
        return {"Role": {"AssumeRolePolicyDocument": {"Statement": [{"Principal": {"Service": self.trust}}]}}}

    def list_service_quotas(self, **call):
        if "NextToken" not in call:
            return {"Quotas": [{"QuotaName": "ml.m5.large for endpoint usage", "Value": 9.0}], "NextToken": "2"}
        return {"Quotas": [{"QuotaName": "ml.m5.large for training job usage", "Value": self.quota}]}


def found(clients, *, role=ROLE, image="123456789012.dkr.ecr.eu-west-1.amazonaws.com/raysm:cpu"):
    service = Service(AWS(role=role, region="eu-west-1", image=image), clients=clients)
    return {check.name: check for check in aws_checks(service, instance_type="ml.m5.large")}


def test_an_account_with_all_that_a_job_needs_is_good():
    checks = found(Clients())
    assert all(check.good for check in checks.values() if check.needed)
    assert checks["quota"].found == "4 instances of ml.m5.large for training job usage"


def test_missing_credentials_are_said_with_how_to_get_them():
    check = found(Clients(credentials=False))["credentials"]
    assert not check.good
    assert "aws configure" in check.remedy


def test_a_role_that_sagemaker_may_not_assume_is_said():
    check = found(Clients(trust="lambda.amazonaws.com"))["role"]
    assert not check.good
    assert "trust policy" in check.remedy


def test_a_role_that_is_not_there_is_said():
    assert not found(Clients(), role="arn:aws:iam::123456789012:role/other")["role"].good


def test_a_quota_of_zero_is_said_with_where_to_ask_for_more():
    check = found(Clients(quota=0.0))["quota"]
    assert not check.good
    assert "Service Quotas" in check.remedy


def test_where_no_image_is_named_aws_own_is():
    image = found(Clients(), image=None)["image"]
    assert image.good
    assert "AWS's PyTorch" in image.found


def test_this_machine_has_what_local_jobs_need():
    checks = {check.name: check for check in local_checks()}
    assert checks["ray"].good
    assert {"server", "namespace", "docker"} <= set(checks)
    assert all(not checks[kind].needed for kind in ("namespace", "docker"))


def test_this_machine_can_import_ray_train():
    assert train_check().good


def test_a_ray_train_that_cannot_be_imported_is_said_with_what_to_install():
    def load():
        raise ImportError("Can't import ray.train") from ModuleNotFoundError("No module named 'pandas'")

    check = train_check(load)
    assert not check.good
    assert "No module named 'pandas'" in check.found
    assert check.remedy == "pip install 'raysm[train]'"
