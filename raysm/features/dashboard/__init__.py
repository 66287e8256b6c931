"""Ray's dashboard on the laptop, and the tunnels to a job on AWS.

Begin with ``dashboard.py``; ``tunnel`` opens a way to an instance without an open port.
"""
