"""The least parameters of each API's Create, as JSON has them."""

ROLE = "arn:aws:iam::123456789012:role/jobs"


def training_parameters(**fields):
    return {
        "TrainingJobName": "a-job",
        "RoleArn": ROLE,
        "AlgorithmSpecification": {"TrainingImage": "image:latest", "TrainingInputMode": "File"},
        "OutputDataConfig": {"S3OutputPath": "s3://bucket/out"},
        "ResourceConfig": {"InstanceType": "ml.m5.large", "InstanceCount": 1, "VolumeSizeInGB": 1},
        "StoppingCondition": {"MaxRuntimeInSeconds": 100},
        **fields,
    }


def processing_parameters(**fields):
    cluster = {"InstanceType": "ml.m5.large", "InstanceCount": 1, "VolumeSizeInGB": 1}
    return {
        "ProcessingJobName": "a-job",
        "RoleArn": ROLE,
        "AppSpecification": {"ImageUri": "image:latest"},
        "ProcessingResources": {"ClusterConfig": cluster},
        **fields,
    }
