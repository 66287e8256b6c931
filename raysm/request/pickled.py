"""What workloads share that cloudpickle has pickled: who pickled them, and what they are called."""

__all__ = ["Pickled"]


class Pickled:
    """Stands before ``Workload`` among the bases of a kind that has these two fields."""

    # Without slots of its own: a dataclass with slots takes no second base that has any.
    __slots__ = ()

    # Said for type checkers: the fields themselves are the dataclass's, in its own order.
    name: str
    python: str

    @property
    def pickled_by(self) -> str:
        """Its ``python``."""
        return self.python

    @property
    def title(self) -> str:
        """Its ``name``."""
        return self.name
