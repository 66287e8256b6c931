"""Sweeps: many trials of a function or script in one job, or in a tuning job of SageMaker.

``client.py`` is what users hold, ``runner.py`` runs a sweep in the job, ``tuning.py`` sends
tuning jobs.
"""
