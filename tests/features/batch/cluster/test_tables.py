"""Tables as records, in batches of one size."""

import json
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import raysm
from raysm.core.protocol.paths import Paths
from raysm.errors import InvalidInput
from raysm.features.batch.cluster.formats import check_inputs
from raysm.features.batch.cluster.pieces import survey
from raysm.features.batch.cluster.tables import Csv, JsonLines, Parquet
from raysm.features.batch.request import BatchInference
from tests.support.batches import pack


def columns_of(kind, folder, files, types=None):
    types = types or {}
    return kind().unify([kind().scan(folder, file, types) for file in files], types)


def read(kind, folder, files, rows=4, batch_size=3, types=None):
    format = kind(columns_of(kind, folder, files, types))
    spans = format.split(folder, files, rows)
    return spans, [batch for span in spans for batch in format.batches(folder, span, batch_size, 1)]


def values(kind, folder, files, column, types=None):
    """Return the type of a column in every batch, which must be one, and all of its values."""
    batches = read(kind, folder, files, types=types)[1]
    kinds = {(batch[column].dtype, batch.table.schema.field(column).type) for batch in batches}
    assert len(kinds) == 1, kinds
    return kinds.pop()[1], [value for batch in batches for value in batch[column].tolist()]


def test_csv_comes_by_its_header_with_rows_that_hold_line_ends(tmp_path):
    (tmp_path / "a.csv").write_text('x,name\n1,"a\nb"\n2,c\n3,d\n4,e\n')
    _, batches = read(Csv, tmp_path, ["a.csv"])
    assert [len(batch["x"]) for batch in batches] == [3, 1]
    assert batches[0]["x"].tolist() == [1, 2, 3]
    assert batches[0]["name"].tolist() == ["a\nb", "c", "d"]
    assert batches[1]["row"].tolist() == [3]


def test_tabs_and_json_lines_and_empty_files(tmp_path):
    (tmp_path / "a.tsv").write_text("x\ty\n1\t2\n")
    (tmp_path / "b.jsonl").write_text('{"x": 1, "tags": ["a", "b"]}\n{"x": 2, "tags": []}\n')
    (tmp_path / "empty.csv").write_text("")
    (tmp_path / "empty.jsonl").write_text("")
    assert read(Csv, tmp_path, ["a.tsv", "empty.csv"])[1][0]["y"].tolist() == [2]
    (batch,) = read(JsonLines, tmp_path, ["b.jsonl", "empty.jsonl"])[1]
    assert batch["tags"].tolist() == [["a", "b"], []]


def test_parquet_is_cut_at_row_groups_and_numbered_through(tmp_path):
    pq.write_table(pa.table({"x": range(10)}), tmp_path / "a.parquet", row_group_size=3)
    spans, batches = read(Parquet, tmp_path, ["a.parquet"])
    assert [(span.start, span.stop, span.first_row, span.rows) for span in spans] == [
        (0, 2, 0, 6),
        (2, 4, 6, 4),
    ]
    assert [len(batch["x"]) for batch in batches] == [3, 3, 3, 1]
    assert [row for batch in batches for row in batch["row"]] == list(range(10))
    assert [x for batch in batches for x in batch["x"]] == list(range(10))


@pytest.mark.parametrize(
    ("format", "name", "content"),
    [
        (Csv, "a.csv", "x,y\n1,2\n3\n"),
        (JsonLines, "a.jsonl", '{"x": 1}\n{"x'),
        (Parquet, "a.parquet", "PAR1 and no more"),
    ],
)
def test_a_torn_file_is_named(tmp_path, format, name, content):
    (tmp_path / name).write_text(content)
    with pytest.raises(InvalidInput, match=name):
        read(format, tmp_path, [name])


def test_digits_with_leading_zeros_stay_text_in_every_file(tmp_path):
    (tmp_path / "a.csv").write_text("zip,n\n00123,1\n")
    (tmp_path / "b.csv").write_text("zip,n\n90210,2\n")
    assert values(Csv, tmp_path, ["b.csv", "a.csv"], "zip") == (pa.string(), ["90210", "00123"])
    assert values(Csv, tmp_path, ["b.csv", "a.csv"], "n") == (pa.int64(), [2, 1])


@pytest.mark.parametrize(
    ("written", "kind"),
    [
        (["1", "2"], pa.int64()),
        (["1", "NA"], pa.int64()),
        (["1e5", "-.5", "-inf", "nan"], pa.float64()),
        (["true", "False"], pa.bool_()),
        (["true", "1"], pa.string()),
        (["007", "8"], pa.string()),
        (["+4930", "1"], pa.string()),
        (["12345678901234567890", "1"], pa.string()),
        (["2024-01-01", "2024-01-02"], pa.string()),
        (["", "NA"], pa.null()),
    ],
)
def test_a_csv_column_has_the_type_that_keeps_all_of_its_values(tmp_path, written, kind):
    (tmp_path / "a.csv").write_text("i,x\n" + "".join(f"0,{value}\n" for value in written))
    found, read_values = values(Csv, tmp_path, ["a.csv"], "x")
    assert found == kind
    if kind == pa.string():
        assert read_values == written


def test_a_whole_number_column_with_a_late_fraction_is_of_fractions(tmp_path):
    # Behind the first block, of which Arrow would guess.
    (tmp_path / "a.csv").write_text("x\n" + "1\n" * 200_000 + "99.5\n")
    kind, found = values(Csv, tmp_path, ["a.csv"], "x")
    assert (kind, found[0], found[-1]) == (pa.float64(), 1.0, 99.5)


def test_a_file_of_missing_values_or_whole_numbers_takes_the_type_of_the_other_files(tmp_path):
    (tmp_path / "a.csv").write_text("x,t,i\n1,,1\n")
    (tmp_path / "b.csv").write_text("x,t,i\n2.5,word,\n")
    (tmp_path / "a.jsonl").write_text('{"x": 1, "t": null, "i": 1}\n')
    (tmp_path / "b.jsonl").write_text('{"x": 2.5, "t": "word"}\n')
    pq.write_table(pa.table({"x": [1], "t": pa.nulls(1), "i": [1]}), tmp_path / "a.parquet")
    pq.write_table(
        pa.table({"x": [2.5], "t": ["word"], "i": pa.array([None], pa.int64())}),
        tmp_path / "b.parquet",
    )
    for kind, ending, nothing in (
        (Csv, "csv", ""),
        (JsonLines, "jsonl", None),
        (Parquet, "parquet", None),
    ):
        files = [f"a.{ending}", f"b.{ending}"]
        assert values(kind, tmp_path, files, "x") == (pa.float64(), [1.0, 2.5])
        assert values(kind, tmp_path, files, "t") == (pa.string(), [nothing, "word"])
        type_, found = values(kind, tmp_path, files, "i")
        # A missing whole number is NaN in NumPy: then the column is of fractions in all files.
        assert (type_, found[0], np.isnan(found[1])) == (pa.int64(), 1.0, True)


def test_large_whole_numbers_are_exact_where_a_value_is_missing(tmp_path):
    (tmp_path / "a.csv").write_text("a,b\n9007199254740993,1\n,2\n9007199254740995,\n")
    (batch,) = read(Csv, tmp_path, ["a.csv"])[1]
    assert batch["a"].tolist() == [9007199254740993, None, 9007199254740995]
    assert batch["b"].tolist()[:2] == [1.0, 2.0]


def test_large_whole_numbers_among_fractions_stay_as_they_are_in_csv_and_are_refused_in_json(
    tmp_path,
):
    (tmp_path / "a.csv").write_text("a\n9007199254740993\n1.5\n")
    assert values(Csv, tmp_path, ["a.csv"], "a") == (pa.string(), ["9007199254740993", "1.5"])
    (tmp_path / "a.jsonl").write_text('{"a": 9007199254740993}\n{"a": 1.5}\n')
    with pytest.raises(InvalidInput, match="'a' .*9007199254740993"):
        read(JsonLines, tmp_path, ["a.jsonl"])
    found = values(JsonLines, tmp_path, ["a.jsonl"], "a", types={"a": "string"})
    assert found == (pa.string(), ["9007199254740993", "1.5"])


def test_texts_that_look_like_dates_stay_text_in_json(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"t": "2024-01-01", "l": ["2024-01-01"]}\n')
    (tmp_path / "b.jsonl").write_text('{"t": "soon", "l": []}\n')
    assert values(JsonLines, tmp_path, ["a.jsonl", "b.jsonl"], "t") == (
        pa.string(),
        ["2024-01-01", "soon"],
    )
    assert values(JsonLines, tmp_path, ["a.jsonl"], "l") == (
        pa.list_(pa.string()),
        [["2024-01-01"]],
    )


def test_a_json_column_of_several_types_is_text_as_it_is_written(tmp_path):
    (tmp_path / "a.jsonl").write_text(
        '{"x": 1, "y": [1]}\n{"x": "one", "y": ["a"]}\n{"x": {"a": true}}\n'
    )
    (tmp_path / "b.jsonl").write_text('{"x": 2, "y": [2]}\n')
    kind, found = values(JsonLines, tmp_path, ["a.jsonl", "b.jsonl"], "x")
    assert (kind, found) == (pa.string(), ["1", "one", '{"a": true}', "2"])
    assert values(JsonLines, tmp_path, ["a.jsonl", "b.jsonl"], "y")[1] == [
        ["1"],
        ["a"],
        None,
        ["2"],
    ]


def kept(folder, file, column):
    """Return the type and the values that a kept column has in the result."""
    arrays = [batch.arrow(column) for batch in read(JsonLines, folder, [file])[1]]
    return arrays[0].type, [value for array in arrays for value in array.to_pylist()]


def test_a_json_object_has_the_keys_of_its_record(tmp_path):
    objects = [{"a": 1}, {"b": [{"c": None}, {}]}, {}, None, {"a": 2.5}]
    lines = "".join(json.dumps({"x": value}) + "\n" for value in objects)
    (tmp_path / "a.jsonl").write_text(lines)
    batches = read(JsonLines, tmp_path, ["a.jsonl"])[1]
    assert [value for batch in batches for value in batch["x"].tolist()] == objects
    kind, found = kept(tmp_path, "a.jsonl", "x")
    assert kind == pa.struct({"a": pa.float64(), "b": pa.list_(pa.struct({"c": pa.null()}))})
    assert [None if row is None else row["a"] for row in found] == [1.0, None, None, None, 2.5]


def test_json_objects_with_many_keys_are_maps_of_their_own_keys(tmp_path):
    objects = [{f"k{n % 7000}": n, "n": n} for n in range(9000)]
    lines = "".join(json.dumps({"x": value}) + "\n" for value in objects)
    (tmp_path / "a.jsonl").write_text(lines)
    kind, found = kept(tmp_path, "a.jsonl", "x")
    assert kind == pa.map_(pa.string(), pa.int64())
    assert [dict(pairs) for pairs in found] == objects


@pytest.mark.parametrize("text", ["{}", "[{}]", '{"a": {}}'])
def test_json_objects_that_are_all_empty_can_be_kept(tmp_path, text):
    (tmp_path / "a.jsonl").write_text(f'{{"x": {text}}}\n')
    (batch,) = read(JsonLines, tmp_path, ["a.jsonl"])[1]
    assert batch["x"].tolist() == [json.loads(text)]
    pq.write_table(pa.table({"x": batch.arrow("x")}), tmp_path / "x.parquet")


def test_half_of_a_character_in_json_is_named_by_its_line_before_anything_is_read(tmp_path):
    (tmp_path / "a.jsonl").write_text(r'{"x": "\ud83d\ude00"}' + "\n" + r'{"x": ["\ud83d"]}' + "\n")
    with pytest.raises(InvalidInput, match=r"line 2 .*a.jsonl .*\\ud83d"):
        JsonLines().scan(tmp_path, "a.jsonl", {})
    mended = (tmp_path / "a.jsonl").read_text().replace(r'["\ud83d"]', r'["\ufffd"]')
    (tmp_path / "a.jsonl").write_text(mended)
    (batch,) = read(JsonLines, tmp_path, ["a.jsonl"])[1]
    assert batch["x"].tolist() == ["😀", '["\ufffd"]']


@pytest.mark.parametrize(
    ("kind", "name", "text"),
    [
        (JsonLines, "a.jsonl", '{{"t": "{}"}}\n'),
        (Csv, "a.csv", "t\n{}\n"),
        (Csv, "b.csv", 't\n"x\n{}"\n'),
    ],
)
def test_a_record_may_be_longer_than_a_block(tmp_path, kind, name, text):
    long = "x" * (9 << 20)
    (tmp_path / name).write_text(text.format(long))
    found = values(kind, tmp_path, [name], "t")[1]
    assert [len(value) - value.count("x\n") * 2 for value in found] == [len(long)]


def test_a_quoted_line_end_at_the_end_of_a_block_does_not_cut_its_record(tmp_path):
    rows = 700_000
    (tmp_path / "a.csv").write_text("t\n" + '"a\nb"\n' * rows)
    batches = read(Csv, tmp_path, ["a.csv"], batch_size=rows)[1]
    assert [set(batch["t"]) for batch in batches] == [{"a\nb"}]
    assert [len(batch["t"]) for batch in batches] == [rows]


@pytest.mark.parametrize("ending", ["csv", "tsv", "jsonl", "parquet"])
def test_the_user_may_say_the_type_of_a_column(tmp_path, ending):
    kind = {"csv": Csv, "tsv": Csv, "jsonl": JsonLines, "parquet": Parquet}[ending]
    for name, x in (("a", 1), ("b", 2.5)):
        table = {"x": [x], "day": ["2024-01-01"]}
        if ending == "parquet":
            pq.write_table(pa.table(table), tmp_path / f"{name}.parquet")
        elif ending == "jsonl":
            (tmp_path / f"{name}.jsonl").write_text(f'{{"x": {x}, "day": "2024-01-01"}}\n')
        else:
            tab = "," if ending == "csv" else "\t"
            (tmp_path / f"{name}.{ending}").write_text(f"x{tab}day\n{x}{tab}2024-01-01\n")
    types = {"x": "string", "day": "date32"}
    files = [f"a.{ending}", f"b.{ending}"]
    assert values(kind, tmp_path, files, "x", types) == (pa.string(), ["1", "2.5"])
    assert values(kind, tmp_path, files, "day", types)[0] == pa.date32()


DEEP = 900 if sys.version_info < (3, 12) else 9000


@pytest.mark.parametrize(
    ("kind", "name", "text", "types", "message"),
    [
        (Csv, "a.csv", "i,x\n1,2\n3,four\n", {"x": "int64"}, r"'x' of \S*a.csv .*'four'"),
        (
            JsonLines,
            "a.jsonl",
            '{"x": "four"}\n',
            {"x": "int64"},
            r"'x' of \S*a.jsonl .*int64",
        ),
        (
            JsonLines,
            "a.jsonl",
            '{"x": "four"}\n',
            {"x": "date32"},
            r"'x' of \S*a.jsonl .*date",
        ),
        (JsonLines, "a.jsonl", '{"x": 1}\n{"x": 2\n', {}, "a.jsonl .*line 2 is not JSON"),
        (JsonLines, "a.jsonl", "[1]\n", {}, "a.jsonl .*line 1 .*JSON object"),
        (Csv, "a.csv", "x,x\n1,2\n", {}, "a.csv .*several .*'x'"),
        (Csv, "a.csv", b"i,x\n1,caf\xe9\n", {}, r"'x' of \S*a.csv .*UTF-8"),
        (JsonLines, "a.jsonl", "[" * 100_000, {}, "a.jsonl .*line 1 is not JSON"),
        (
            JsonLines,
            "a.jsonl",
            '{"x": ' + "[" * DEEP + "]" * DEEP + "}",
            {},
            "a.jsonl .*maximum recur",
        ),
        (Csv, "a.csv", "x,y\n1,2\n", {"z": "string"}, "types .*'z'.* x, y"),
    ],
)
def test_what_cannot_be_read_is_named_by_its_file_and_its_column(
    tmp_path, kind, name, text, types, message
):
    (tmp_path / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(InvalidInput, match=message):
        read(kind, tmp_path, [name], types=types)


def test_parquet_columns_without_a_common_type_are_refused_with_both_files(tmp_path):
    pq.write_table(pa.table({"x": [1]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"x": [[1]]}), tmp_path / "b.parquet")
    with pytest.raises(
        InvalidInput, match=r"'x' is list<\S+ int64> in b.parquet and int64 in a.parquet"
    ):
        read(Parquet, tmp_path, ["a.parquet", "b.parquet"])


def test_whole_numbers_of_more_than_64_bits_keep_their_digits_as_text_in_json(tmp_path):
    (tmp_path / "a.jsonl").write_text(
        '{"id": 12345678901234567890, "x": 1e20}\n{"id": 1, "x": 1}\n'
    )
    assert values(JsonLines, tmp_path, ["a.jsonl"], "id") == (
        pa.string(),
        ["12345678901234567890", "1"],
    )
    assert values(JsonLines, tmp_path, ["a.jsonl"], "x") == (pa.float64(), [1e20, 1.0])


def test_csv_files_with_other_columns_are_refused_and_the_same_in_another_order_are_one(tmp_path):
    (tmp_path / "a.csv").write_text("x,y\n1,a\n")
    (tmp_path / "b.csv").write_text("y,x\nb,2\n")
    (tmp_path / "c.csv").write_text("3,c\n4,d\n")
    assert values(Csv, tmp_path, ["a.csv", "b.csv"], "x") == (pa.int64(), [1, 2])
    with pytest.raises(InvalidInput, match="c.csv .* a.csv.* '3', 'c', 'x', 'y'"):
        read(Csv, tmp_path, ["a.csv", "c.csv"])


def asked(**fields):
    return BatchInference(
        **{"name": "m", "python": "3.11", "batch_size": 2, "piece_rows": 2} | fields
    )


def predict(batch):
    return {"y": batch["row"]}


@pytest.mark.parametrize(
    ("distribution", "host"), [("FullyReplicated", None), ("ShardedByS3Key", "algo-1")]
)
def test_files_are_cut_where_they_lie(base, distribution, host):
    folder = Paths(base).channel("data")
    folder.mkdir(parents=True)
    (folder / "a.txt").write_text("1\n2\n3\n")
    (folder / "b.txt").write_text("4\n")
    (folder / ".DS_Store").write_text("nothing of the user's")
    (folder / "_SUCCESS").write_text("")
    pack(raysm.Batch(predict, batch_size=2), base, distribution=distribution)
    kind, pieces, _ = survey(asked(), "data", print)
    assert kind == "text"
    assert [(p.number, p.span.files, p.span.first_row, p.span.rows, p.host) for p in pieces] == [
        (0, ("a.txt",), 0, 2, host),
        (1, ("a.txt",), 2, 1, host),
        (2, ("b.txt",), 0, 1, host),
    ]


@pytest.mark.parametrize("distribution", ["FullyReplicated", "ShardedByS3Key"])
def test_numbers_in_the_names_of_files_count_as_numbers(base, distribution):
    folder = Paths(base).channel("data")
    for name in ("part-10.txt", "part-2.txt", "part-1/a.txt", "b.txt"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("1\n")
    pack(raysm.Batch(predict, batch_size=2), base, distribution=distribution)
    _, pieces, _ = survey(asked(), "data", print)
    names = [name for piece in pieces for name in piece.span.files]
    assert names == ["b.txt", "part-1/a.txt", "part-2.txt", "part-10.txt"]


@pytest.mark.parametrize(
    ("name", "text", "remedy"),
    [
        ("a.csv", "a;b\n1;2\n", "write it with commas"),
        ("a.csv", "a\tb\n1\t2\n", "name it .tsv"),
        ("a.tsv", "a,b\n1,2\n", "write it with commas"),
    ],
)
def test_values_with_another_delimiter_are_refused(name, text, remedy, tmp_path):
    (tmp_path / name).write_text(text)
    with pytest.raises(InvalidInput) as caught:
        columns_of(Csv, tmp_path, [name])
    assert remedy in caught.value.remedy
    # Before the job is sent, too.
    with pytest.raises(InvalidInput):
        check_inputs(
            BatchInference(name="f", python="3.11", batch_size=1), {"data": tmp_path / name}
        )


@pytest.mark.parametrize(
    "text", ["text\na;b\n", "a; b\nno such sign\n", "only;a header\n", "text\n1\n"]
)
def test_a_table_of_one_column_may_have_other_delimiters_in_its_text(text, tmp_path):
    (tmp_path / "a.csv").write_text(text)
    assert len(columns_of(Csv, tmp_path, ["a.csv"]).schema.names) == 1


def test_a_parquet_type_that_arrow_lacks_is_named(tmp_path):
    polars = pytest.importorskip("polars")
    polars.DataFrame({"x": [1]}).with_columns(polars.col("x").cast(polars.Int128)).write_parquet(
        tmp_path / "a.parquet"
    )
    with pytest.raises(InvalidInput) as caught:
        columns_of(Parquet, tmp_path, ["a.parquet"])
    assert "Int64" in caught.value.remedy
