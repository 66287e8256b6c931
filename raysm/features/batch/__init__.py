"""Batch inference: a function over the rows of files, written as files of the same names.

``request.py`` has its options, ``runner.py`` runs it in the job, and ``result.py`` is what the
user gets.
"""
