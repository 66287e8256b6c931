"""Sweeps whose trials the service launches, a training job each: a HyperParameterTuningJob and the handle on it."""
