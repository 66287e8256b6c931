"""A script, a command or a function that runs once, on the head.

``request.py`` has its kinds, and ``runner.py`` runs them in the job.
"""
