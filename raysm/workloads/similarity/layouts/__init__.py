"""Where the rows lie, and so which instance compares which of them."""

from raysm.workloads.similarity.layouts.layout import Layout, compare, load

__all__ = ["Layout", "compare", "load"]
