"""What a trial says of itself, by a call or by a line."""

from raysm.workloads.report import parse, report_line, report_of


def test_a_scripts_report_is_a_line_and_its_checkpoint_a_copy(tmp_path):
    folder, trial = tmp_path / "mine", tmp_path / "trial"
    folder.mkdir()
    trial.mkdir()
    (folder / "model").write_text("1")
    line = report_line(report_of({"loss": 0.5}, 3, folder), trial)
    (folder / "model").write_text("2")
    report = parse(line)
    assert (report.metrics, report.step) == ({"loss": 0.5}, 3)
    assert (trial / report.checkpoint / "model").read_text() == "1"
