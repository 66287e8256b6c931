"""The embedded SageMaker: its API over HTTP on loopback, in front of the jobs of this machine.

A request finds its way by ``app``: SageMaker's job operations to ``operations``, reads of the jobs' logs to
``log_service``, ``/raysm/…`` to ``console``, all else (S3, CloudWatch, STS, IAM …) to moto. A job's record lies in
``records``, its life is ``run``.
"""
