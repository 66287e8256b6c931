"""The half in every instance: joins the others, starts Ray, runs the driver on the head, and watches everything.

Only the standard library: what an image lacks becomes a clear failure reason. Ray runs as child processes.
"""
