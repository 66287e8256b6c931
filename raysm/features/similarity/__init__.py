"""The cosine similarity of every row of a matrix with every other row.

``request.py`` has its options, ``runner.py`` runs it in the job, and ``result.py`` is what the
user gets.
"""
