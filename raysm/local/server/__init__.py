"""The embedded SageMaker: its API over HTTP on loopback, in front of the jobs of this machine.

``app`` routes requests: SageMaker's job operations to ``operations``, reads of the jobs' logs to
``log_service``, prices and quotas to ``market``, Batch to ``batch``, ``/raysm/…`` to ``console``,
all else (S3, CloudWatch, STS, IAM …) to moto. ``records`` keeps the records of the jobs, and
``run`` runs one job.
"""
