"""HyperParameterTuningJobs: a request flows in, training jobs are launched one after the other, the best one flows out.

A strategy (``strategies/``) says what to try next, ``progress`` when it is enough, ``run`` carries it out.
"""
