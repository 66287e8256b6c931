"""Small programs that hang, each with the process and the line to blame, and slow ones that do not hang.

``python -m tests.hangs`` runs them as jobs and counts which are named right, and false alarms.
"""
