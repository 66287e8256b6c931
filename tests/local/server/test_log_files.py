"""The files of a job's logs."""

from raysm.local.server.log_files import read


def test_a_torn_line_is_passed_over(tmp_path):
    path = tmp_path / "stream"
    path.write_bytes(b'[1, "a"]\n[2, "to[3, "rn"]\n7\n[4, "b"]\n')
    assert [(at_ms, message) for _, _, at_ms, message in read(path)] == [(1, "a"), (4, "b")]
    assert [path.read_bytes()[begun:behind] for begun, behind, *_ in read(path)] == [b'[1, "a"]\n', b'[4, "b"]\n']
