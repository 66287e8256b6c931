"""Ray's dashboard on the laptop, and the tunnels to a job on AWS.

Begin with ``dashboard.py``; ``tunnel`` reaches an instance that has no open port.
"""
