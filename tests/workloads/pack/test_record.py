"""The record of a pack, from one run of it to the next."""

from raysm.contract.result import ROW_RECORD, RowOutcome, outcomes_in
from raysm.workloads.pack.record import RowRecord


def done(folder, name, content="weights"):
    (folder / name / "model").mkdir(parents=True)
    (folder / name / "model" / "x").write_text(content)
    return RowOutcome(state="done", files={"model/x": len(content)})


def test_who_reads_it_from_afar_sees_each_change(tmp_path):
    record = RowRecord(tmp_path)
    record.begin("a")
    assert outcomes_in((tmp_path / ROW_RECORD).read_text()) == {"a": RowOutcome(state="running")}
    ended = done(tmp_path, "a")
    record.end("a", ended)
    record.begin("b")
    assert outcomes_in((tmp_path / ROW_RECORD).read_text()) == {"a": ended, "b": RowOutcome(state="running")}


def test_the_next_run_has_what_came_to_an_end_and_nothing_else(tmp_path):
    record = RowRecord(tmp_path)
    for name, outcome in (("a", done(tmp_path, "a")), ("b", RowOutcome(state="failed", reason="why"))):
        record.begin(name)
        record.end(name, outcome)
    record.begin("c")
    assert set(RowRecord(tmp_path).outcomes) == {"a", "b"}


def test_a_row_whose_files_have_not_come_along_is_run_again(tmp_path):
    record = RowRecord(tmp_path)
    record.end("a", done(tmp_path, "a"))
    (tmp_path / "a" / "model" / "x").write_text("cut")
    assert RowRecord(tmp_path).outcomes == {}


def test_a_torn_record_begins_anew(tmp_path):
    (tmp_path / ROW_RECORD).write_text('{"rows": {"a": ')
    assert RowRecord(tmp_path).outcomes == {}
