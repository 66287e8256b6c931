"""Code that runs in every instance: join the cluster, start Ray, watch the processes.

The head also runs the driver.

It uses only the standard library, so that a package that the image lacks becomes a clear failure
reason. Ray runs in child processes.
"""
