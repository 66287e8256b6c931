"""Tunnels to ports of a job's instances, and shells in them."""
