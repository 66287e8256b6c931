"""Code that runs in every instance: join the cluster, start Ray, run the driver on the head, watch the processes.

It uses only the standard library, so that a package that the image lacks becomes a clear failure
reason. Ray runs in child processes.
"""
