"""A way from this machine to a port of an instance, on AWS and here: SSM's data channel, spoken in Python."""
