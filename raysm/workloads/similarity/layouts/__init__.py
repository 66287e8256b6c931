"""Where the rows lie, and so which instance compares which of them.

A layout is chosen once, here, by what the channels say; to add one is to write its file and a line in ``load``.
"""

from raysm.workloads.similarity.layouts.comparing import compare
from raysm.workloads.similarity.layouts.layout import Dispatch, Layout, LoadedRows
from raysm.workloads.similarity.layouts.replicated import Replicated
from raysm.workloads.similarity.layouts.sharded.layout import Sharded
from raysm.workloads.similarity.layouts.sharded.sharded_rows import ShardedRows, with_features
from raysm.workloads.similarity.layouts.whole_rows import load_everywhere
from raysm.workloads.similarity.reading.source import Source

__all__ = ["Dispatch", "Layout", "compare", "load"]


def load(matrix: Source, queries: Source | None = None) -> Layout:
    """Have every instance map its rows, or convert them once; return the layout of both channels.

    Raises:
        InvalidInput: The files make no matrix; the message says which, and on which instance.
        InvalidRequest: A head that only coordinates has files of its own share.
        InstanceLost: An instance that has a share is not there.
    """
    sources = [with_features(matrix)]
    if queries is not None:
        sources.append(with_features(queries, sources[0].expected))
    whole = iter(load_everywhere([source for source in sources if not source.sharded]))
    rows: list[LoadedRows] = [ShardedRows(source) if source.sharded else next(whole) for source in sources]
    # One is enough: tasks have to go where its rows are.
    kind = Sharded if any(source.sharded for source in sources) else Replicated
    return kind(rows[0], None if queries is None else rows[1])
