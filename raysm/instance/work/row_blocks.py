"""Blocks of rows and of pairs of rows.

They import no Ray, because engines and benchmarks work without it.
"""

from dataclasses import dataclass

from raysm.errors import InvalidRequest


@dataclass(frozen=True, slots=True)
class RowBlock:
    start: int
    stop: int
    """The row after the last."""

    @property
    def rows(self) -> int:
        return self.stop - self.start

    def __str__(self) -> str:
        return f"rows {self.start} to {self.stop - 1}"


@dataclass(frozen=True, slots=True)
class TileBlock:
    rows: RowBlock
    columns: RowBlock

    def __str__(self) -> str:
        return f"{self.rows}, columns {self.columns.start} to {self.columns.stop - 1}"


def row_blocks(rows: int, block_rows: int) -> list[RowBlock]:
    """Cut ``rows`` rows into blocks of ``block_rows``, the last one smaller.

    Raises:
        InvalidRequest: ``rows`` is negative, or ``block_rows`` below 1.
    """
    if rows < 0 or block_rows < 1:
        raise InvalidRequest(
            "row_blocks: rows must be at least 0 and block_rows at least 1, "
            f"got {rows}, {block_rows}"
        )
    return [RowBlock(start, min(start + block_rows, rows)) for start in range(0, rows, block_rows)]
