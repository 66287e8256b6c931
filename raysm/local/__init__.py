"""SageMaker's instances on this machine: their files, their processes, their logs and how a job of them ends."""
