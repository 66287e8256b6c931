"""The AWS account: IAM policies, images and quotas."""
