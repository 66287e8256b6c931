"""The tests of raysm: they mirror its tree."""
