"""The part of AWS Batch that a grid's controller and array jobs use: queues, job definitions, jobs of containers."""
