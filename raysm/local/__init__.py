"""SageMaker's instances on this machine: their files, processes and logs, and a job's end."""
