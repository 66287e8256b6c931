"""Ray's dashboard of a running job, at an address of this machine."""
