"""Problems for every engine and layout, drawn at random; each follows from its seed alone."""

import csv
import gzip
import io
import json
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from raysm.features.similarity.cluster.reading.columns import Selection
from tests.support.adversarial import KINDS, TYPES, cast
from tests.support.reference import scores_between

MODES = ("topk", "threshold", "full")

COLUMNS = (1, 2, 7, 8, 17, 33, 64, 129, 260)

NORMAL = "normal"


@dataclass(frozen=True)
class Part:
    """One file of a matrix."""

    rows: np.ndarray
    format: str
    columns: "Columns | None" = None
    """How its columns are named and ordered; None: plainly, without any others."""


@dataclass(frozen=True)
class Columns:
    """The columns of one table."""

    names: list[str]
    """Of the features, in the order of the rows."""
    ids: dict[str, list[str]]
    others: dict[str, list]
    """Columns that are neither features nor ids."""
    order: np.random.Generator | None
    """Shuffles the columns; None leaves the features in their order."""
    index: str | None
    """Of ``others``: the one that pandas' metadata calls the index."""


@dataclass(frozen=True, kw_only=True)
class Problem:
    seed: int
    kind: str
    parts: list[Part]
    queries: list[Part] | None
    """Those of the rows that look for neighbors in it."""
    sharded: bool
    """The files lie on several instances."""
    k: int
    threshold: float
    block_rows: int
    selection: Selection
    """Which columns are ids and features."""
    at_once: int
    """Tasks that are dealt before the first of them has ended."""
    ranges: int

    @property
    def sparse(self):
        return all(part.format == "CSR" for part in self.parts + (self.queries or []))

    @property
    def layout(self):
        """What is told of it by itself in a report: where files lie, and whose types differ."""
        if self.sharded:
            return "shards"
        if self.queries is not None:
            types = [
                np.result_type(*(read_type(part) for part in side))
                for side in (self.queries, self.parts)
            ]
            return f"queries of {'the same' if types[0] == types[1] else 'another'} type"
        return "one file" if len(self.parts) == 1 else "folder of files"

    @property
    def columns_drawn(self):
        """Whether columns are named, ordered and chosen at random."""
        return self.parts[0].columns is not None

    def ids(self, parts):
        values = [list(zip(*part.columns.ids.values(), strict=True)) for part in parts]
        names = self.selection.ids
        return [
            one[0] if len(names) == 1 else dict(zip(names, one, strict=True))
            for part in values
            for one in part
        ]

    @property
    def rows(self):
        return sum(len(part.rows) for part in self.parts)

    @property
    def columns(self):
        return self.parts[0].rows.shape[1]

    def scores(self):
        matrix = as_float64(self.parts)
        return scores_between(matrix if self.queries is None else as_float64(self.queries), matrix)

    def __str__(self):
        sides = [self.parts] if self.queries is None else [self.queries, self.parts]
        types = " / ".join(
            " + ".join(f"{part.rows.dtype} {part.format}" for part in side) for side in sides
        )
        layout = (
            "shards"
            if self.sharded
            else "queries / matrix"
            if self.queries is not None
            else "matrix"
        )
        chosen = f", {self.selection}" if self.columns_drawn else ""
        return (
            f"{self.kind}, {self.rows} x {self.columns}, {layout} {types}, k={self.k}, threshold={self.threshold!r}"
            f"{chosen}"
        )


def read_type(part):
    return np.dtype(np.float64) if part.format.startswith(("CSV", "TSV")) else part.rows.dtype


def as_float64(parts):
    """Return all rows as the definition takes them."""
    return np.concatenate([part.rows.astype(np.float64) for part in parts])


def drawn(seed):
    rng = np.random.default_rng(seed)
    columns = int(rng.choice(COLUMNS))
    count = int(rng.integers(2, 60)) if rng.random() < 0.9 else int(rng.integers(100, 180))
    layout = rng.choice(["one", "two", "two", "shards"])
    sparse = bool(rng.random() < 0.25)
    kind, rows = some_rows(rng, count, columns, sparse)
    parts = some_files(rng, rows, sparse, most=4 if layout == "shards" else 3)
    queries = None
    if layout == "two":
        _, seeking = some_rows(rng, int(rng.integers(1, 40)), columns, sparse)
        if rng.random() < 0.6:
            # Rows of the matrix itself among them: what is most similar to them is known, and near
            # 1.
            seeking = cast(seeking, rows.dtype)
            some = min(len(seeking), count, int(rng.integers(1, 20)))
            seeking[:some] = rows[rng.integers(count, size=some)]
        queries = some_files(rng, seeking, sparse and rng.random() < 0.8)
    selection = Selection()
    if not sparse and rng.random() < 0.4:
        selection, parts, queries = some_columns(rng, parts, queries)
    scores = scores_between(as_float64(parts if queries is None else queries), as_float64(parts))
    return Problem(
        seed=seed,
        kind=kind,
        parts=parts,
        queries=queries,
        sharded=bool(layout == "shards"),
        k=int(
            rng.integers(1, min(20, count) if rng.random() < 0.8 else count + (queries is not None))
        ),
        threshold=some_threshold(rng, scores),
        selection=selection,
        block_rows=int(rng.integers(max(1, count // 8), count + 1)),
        at_once=int(rng.integers(1, 5)),
        ranges=int(rng.integers(1, 5)),
    )


def some_rows(rng, count, columns, sparse):
    """Return the name of a kind, and rows of it, with copies, opposites and zeros among them."""
    kind = str(rng.choice([*KINDS, NORMAL]))
    rows = (
        rng.standard_normal((count, columns)) * 20
        if kind == NORMAL
        else KINDS[kind](rng, count, columns)
    )
    rows = cast(rows, str(rng.choice(TYPES))) if rng.random() < 0.6 else rows.copy()
    if sparse:
        rows[rng.random(rows.shape) >= rng.choice([0.02, 0.2, 0.6])] = 0
    for _ in range(int(rng.integers(0, 1 + count // 4))):
        source, target = rng.integers(count, size=2)
        rows[target] = rows[source]
        if rng.random() < 0.3 and rows.dtype.kind in "fi":
            rows[target] *= -1
    if rng.random() < 0.3:
        rows[rng.integers(count)] = 0
    return kind, rows


def some_files(rng, rows, sparse, most=3):
    """Cut rows into files, some of them of another type than the others."""
    edges = np.unique(
        [0, *rng.integers(1, len(rows) + 1, int(rng.integers(most))), len(rows)]
    ).tolist()
    found = []
    for start, stop in zip(edges, edges[1:], strict=False):
        some = (
            cast(rows[start:stop], str(rng.choice(TYPES)))
            if rng.random() < 0.3
            else rows[start:stop]
        )
        found.append(Part(some, "CSR" if sparse else str(rng.choice(list(FORMATS)))))
    return found


def some_columns(rng, parts, queries):
    """Make tables of all files, with columns that are named, ordered and chosen at random; return the choice too."""
    width = parts[0].rows.shape[1]
    ids = tuple([(), ("key",), ("file", "row")][rng.integers(3)])
    others = tuple([(), ("",), ("index", "note"), ("Unnamed: 0",)][rng.integers(4)])
    # One kind for all files, or scalar columns and lists beside each other.
    kind = str(rng.choice(["scalars", "any", "mixed"] if width > 1 else ["scalars", "any"]))
    style = str(rng.choice(["f{}", "f.{}", "ü {}", '{}-th, "quoted"']))
    names = ["vector", "z"] if kind == "mixed" else [style.format(i) for i in range(width)]
    columns = (
        tuple(rng.permutation(names).tolist()) if kind == "mixed" or rng.random() < 0.3 else None
    )
    # Chosen by name, elements of lists have none.
    formats = {"scalars": SCALARS, "mixed": ["Parquet mixed"]}.get(
        kind, SCALARS if columns else SCALARS + LISTS
    )
    has_scalars = False

    def made(part):
        nonlocal has_scalars
        format = str(rng.choice(formats))
        count, is_parquet = len(part.rows), format.startswith("Parquet")
        index = (
            str(rng.choice(["__index_level_0__", "key of pandas"]))
            if is_parquet and rng.random() < 0.4
            else None
        )
        there = dict.fromkeys((*others, *([index] if index else ())))
        for name in there:
            there[name] = (
                [f"n{i}" for i in range(count)]
                if name == "note"
                else rng.permutation(count).tolist()
            )
        # The first file with names says in which order all are read.
        order = (
            np.random.default_rng(rng.integers(1 << 30))
            if has_scalars and rng.random() < 0.6
            else None
        )
        has_scalars |= format not in LISTS
        values = {name: [f"{rng.integers(1000):03}" for _ in range(count)] for name in ids}
        return Part(part.rows, format, Columns(names, values, there, order, index))

    parts = [made(part) for part in parts]
    queries = None if queries is None else [made(part) for part in queries]
    selection = Selection(ids, columns, () if columns else others)
    return selection, parts, queries


def some_threshold(rng, scores):
    """Return a number that is reached by some scores, or is one of them, or lies beside."""
    score = scores[tuple(rng.integers(scores.shape))]
    beside = np.nextafter(score, np.float32(rng.choice([-2, 2])))
    near = float(score) + float(rng.choice([-1e-9, 1e-9]))
    least = rng.choice(
        [-1, 0, 1, float(score), float(beside), near, round(float(score), 2), rng.uniform(-0.3, 1)]
    )
    return float(np.clip(least, -1, 1))


# ---- files
# ------------------------------------------------------------------------------------------------------


def _npy(rows, path, rng):
    np.save(f"{path}.npy", rows)


def _fortran_npy(rows, path, rng):
    np.save(f"{path}.npy", np.asfortranarray(rows))


def _big_endian_npy(rows, path, rng):
    np.save(f"{path}.npy", rows.astype(rows.dtype.newbyteorder(">")))


def _npz(rows, path, rng):
    np.savez_compressed(f"{path}.npz", rows=rows)


def _csr(rows, path, rng):
    """In any order within a row, some zeros stored, some elements in two pieces."""
    columns, values, begins = [], [], [0]
    for row in rows:
        places = np.flatnonzero((row != 0) | (rng.random(len(row)) < 0.02))
        places = rng.permutation(np.concatenate([places, places[rng.random(len(places)) < 0.05]]))
        _, first = np.unique(places, return_index=True)
        data = np.zeros(len(places), dtype=rows.dtype)
        data[first] = row[places[first]]
        columns.append(places)
        values.append(data)
        begins.append(begins[-1] + len(places))
    order = str(rng.choice(["<", ">"]))
    data = np.concatenate(values).astype(rows.dtype.newbyteorder(order))
    indices = np.concatenate(columns).astype(f"{order}i{rng.choice([4, 8])}")
    shape = np.array(rows.shape)
    np.savez(
        f"{path}.npz",
        format=np.array(b"csr"),
        data=data,
        indices=indices,
        indptr=np.array(begins),
        shape=shape,
    )


def _csv_text(rows, rng):
    header = (
        ",".join(f'"c\n{i}"' for i in range(rows.shape[1])) + "\n" if rng.random() < 0.5 else ""
    )
    # Without a header, a first row of 0, 1, 2 ... must not be taken for one.
    number = str if header and rows.dtype.kind in "iu" else lambda value: repr(float(value))
    return header + "".join(",".join(map(number, row)) + "\n" for row in rows.tolist())


def _csv(rows, path, rng):
    path.with_name(f"{path.name}.csv").write_text(_csv_text(rows, rng))


def _csv_gz(rows, path, rng):
    path.with_name(f"{path.name}.csv.gz").write_bytes(
        gzip.compress(_csv_text(rows, rng).encode(), 1)
    )


def _parquet(rows, path, rng):
    # The names of ``_csv_text``.
    columns = {f"c\n{i}": rows[:, i] for i in range(rows.shape[1])}
    pq.write_table(
        pa.table(columns), f"{path}.parquet", row_group_size=int(rng.integers(1, len(rows) + 1))
    )


def _parquet_lists(rows, path, rng):
    pq.write_table(pa.table({"row": _lists(rows)}), f"{path}.parquet")


def _lists(rows):
    values = pa.array(np.ascontiguousarray(rows).ravel())
    return pa.ListArray.from_arrays(
        np.arange(len(rows) + 1, dtype=np.int32) * rows.shape[1], values
    )


def _arrow_tensors(rows):
    count, width = rows.shape
    short = next(size for size in (3, 2, 1) if width % size == 0)
    stored = rows.reshape(count, width // short, short).transpose(0, 2, 1)
    values = pa.array(np.ascontiguousarray(stored).ravel())
    kind = pa.fixed_shape_tensor(values.type, (short, width // short), permutation=[1, 0])
    return pa.ExtensionArray.from_storage(kind, pa.FixedSizeListArray.from_arrays(values, width))


def _table(part, path, rng):
    """Save a file whose columns are named, ordered and chosen at random."""
    rows, columns = part.rows, part.columns
    if part.format in LISTS:
        features = {
            "vector": _arrow_tensors(rows) if part.format == "Parquet tensors" else _lists(rows)
        }
    elif part.format == "Parquet mixed":
        features = {"vector": _lists(rows[:, :-1]), "z": rows[:, -1]}
    else:
        features = {name: rows[:, i] for i, name in enumerate(columns.names)}
    names = (
        list(features)
        if columns.order is None
        else columns.order.permutation(list(features)).tolist()
    )
    for name in (*columns.ids, *columns.others):
        names.insert(int(rng.integers(len(names) + 1)), name)
    values = features | columns.ids | columns.others
    if part.format.startswith("Parquet"):
        table = pa.table({name: values[name] for name in names})
        if part.format == "Parquet tensors of Ray":
            # As Ray Data leaves them: lists, with their shape beside.
            metadata = {
                "ARROW:extension:name": "ray.data.arrow_tensor",
                "ARROW:extension:metadata": f"[{len(rows[0])}]",
            }
            at = table.schema.get_field_index("vector")
            table = table.cast(table.schema.set(at, table.schema.field(at).with_metadata(metadata)))
        if columns.index is not None:
            table = table.replace_schema_metadata(
                {"pandas": json.dumps({"index_columns": [columns.index]})}
            )
        pq.write_table(table, f"{path}.parquet", row_group_size=int(rng.integers(1, len(rows) + 1)))
        return
    text = io.StringIO()
    writer = csv.writer(text, delimiter="\t" if part.format == "TSV" else ",")
    writer.writerow(names)
    numbers = {
        name: [repr(float(one)) for one in column.tolist()] for name, column in features.items()
    }
    writer.writerows(zip(*((values | numbers)[name] for name in names), strict=True))
    suffix = {"CSV": ".csv", "CSV gz": ".csv.gz", "TSV": ".tsv"}[part.format]
    content = text.getvalue().encode()
    path.with_name(f"{path.name}{suffix}").write_bytes(
        gzip.compress(content, 1) if suffix == ".csv.gz" else content
    )


FORMATS = {
    "npy": _npy,
    "npy Fortran": _fortran_npy,
    "npy big-endian": _big_endian_npy,
    "npz": _npz,
    "CSR": _csr,
    "CSV": _csv,
    "CSV gz": _csv_gz,
    "Parquet": _parquet,
    "Parquet lists": _parquet_lists,
}
"""How a matrix is saved: ``FORMATS[name](rows, path without suffix, rng)``."""


SCALARS = ["CSV", "CSV gz", "TSV", "Parquet"]
LISTS = ["Parquet lists", "Parquet tensors", "Parquet tensors of Ray"]


def save(parts, folder, seed, first=0):
    """Save the files of a matrix, or of one instance's share, numbered from ``first`` on."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, part in enumerate(parts, start=first):
        rng, path = np.random.default_rng([seed, number]), folder / f"part-{number}"
        if part.columns is None:
            FORMATS[part.format](part.rows, path, rng)
        else:
            _table(part, path, rng)
