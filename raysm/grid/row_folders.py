"""Where the files of a grid's rows lie in S3: names flow in, URIs flow out. Every such name stands here, once."""

from raysm.contract.paths import ROWS

__all__ = ["pack_uri", "row_uri", "rows_uri", "state_uri"]


def state_uri(root: str, grid: str, row: str) -> str:
    """Return the checkpoints of a row that has its jobs alone.

    Args:
        root: Of all that raysm keeps in the bucket of a region.
        grid: ``GridRecord.prefix``.
        row: Hash of its key.
    """
    return f"{root}/grids/{grid}{row}"


def pack_uri(root: str, grid: str, pack: str) -> str:
    """Return the checkpoints of the jobs that the rows of a pack share."""
    return f"{root}/grids/{grid}pack-{pack}"


def rows_uri(root: str, grid: str, pack: str) -> str:
    """Return the folder of the rows of a pack: the record of them, and a folder for each."""
    return f"{pack_uri(root, grid, pack)}/{ROWS}"


def row_uri(root: str, grid: str, pack: str, row: str) -> str:
    """Return the folder of a row of a pack."""
    return f"{rows_uri(root, grid, pack)}/{row}"
