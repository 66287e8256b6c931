"""AWS Batch, embedded: queues and jobs flow in, programs and training jobs that really run flow out.

``resources`` has what jobs are sent to, ``records`` the jobs, ``run`` brings them from one status to the next; what an
attempt of a job is, its kind of ``work`` says.
"""
