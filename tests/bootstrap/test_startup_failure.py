"""What an instance that cannot begin leaves."""

from raysm.bootstrap.exit_status import report_startup_failure
from raysm.contract.names import BASE_DIR
from raysm.errors import InvalidPayload


def test_an_error_of_raysm_s_is_one_line_in_the_log_and_in_the_failure_file_and_exits_two(tmp_path, capfd):
    status = report_startup_failure(InvalidPayload("the payload was torn"), {BASE_DIR: str(tmp_path)})
    assert status.exit_code == 2
    assert (tmp_path / "output/failure").read_text() == "the payload was torn"
    assert capfd.readouterr().err == "raysm: the payload was torn\n"


def test_any_other_error_has_its_traceback_in_the_log_and_never_in_the_failure_file(tmp_path, capfd):
    status = report_startup_failure(ZeroDivisionError("division by zero"), {BASE_DIR: str(tmp_path)})
    assert status.exit_code == 1
    assert "\n" not in (tmp_path / "output/failure").read_text()
    assert "ZeroDivisionError" in capfd.readouterr().err


def test_a_disk_that_takes_no_failure_file_does_not_hide_the_exit_code(tmp_path):
    (tmp_path / "output").touch()
    assert report_startup_failure(InvalidPayload("torn"), {BASE_DIR: str(tmp_path)}).exit_code == 2
