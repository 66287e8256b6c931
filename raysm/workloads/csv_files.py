"""Open CSV and TSV files, by the same rules for every workload.

The delimiter follows from the name, and a quoted value may hold line breaks, as the client's check
of the first lines reads them too.
"""

from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pa_csv

from raysm.workloads.file_names import is_gzipped


def delimiter_of(name: str) -> str:
    return "\t" if name.lower().removesuffix(".gz").endswith(".tsv") else ","


def open_csv(
    path: Path,
    *,
    block_bytes: int,
    convert: pa_csv.ConvertOptions,
    column_names: list[str] | None = None,
    skip_lines: int = 0,
) -> pa_csv.CSVStreamingReader:
    """Return a reader of record batches.

    Args:
        path: The file; its name says whether it is compressed, and its delimiter.
        block_bytes: Bytes that are parsed at a time; no record may be longer.
        convert: Types of the columns, and what stands for a missing value.
        column_names: Names of the columns; None reads them from the first line.
        skip_lines: Lines before the first record, if ``column_names`` are given.
    """
    return pa_csv.open_csv(
        pa.input_stream(str(path), compression="gzip" if is_gzipped(path.name) else None),
        read_options=pa_csv.ReadOptions(
            block_size=block_bytes,
            column_names=column_names,
            skip_rows=skip_lines,
            # With threads, Arrow's messages would not name the line.
            use_threads=False,
        ),
        parse_options=pa_csv.ParseOptions(delimiter=delimiter_of(path.name), newlines_in_values=True),
        convert_options=convert,
    )
