import stat
import subprocess
import sys
from pathlib import Path

import pytest

from raysm.bootstrap.scratch import private_token
from raysm.contract.paths import Paths


@pytest.fixture
def token(tmp_path):
    path = tmp_path / "channel" / "token"
    path.parent.mkdir()
    path.write_text("secret")
    path.chmod(0o644)
    return path


def test_a_token_that_a_download_made_readable_is_made_private_where_it_lies(token, tmp_path):
    assert private_token(token, Paths(tmp_path)) == token
    assert stat.S_IMODE(token.stat().st_mode) == 0o600


@pytest.mark.namespace
def test_a_token_on_a_read_only_channel_is_copied_to_where_others_cannot_read(token, tmp_path):
    code = (
        "import sys; from pathlib import Path; from raysm.bootstrap.scratch import private_token; "
        "from raysm.contract.paths import Paths; print(private_token(Path(sys.argv[1]), Paths(Path(sys.argv[2]))))"
    )
    seal = 'mount --bind "$0" "$0" && mount -o remount,bind,ro "$0" && exec "$@"'
    inner = [sys.executable, "-c", code, str(token), str(tmp_path)]
    command = ["unshare", "--mount", "sh", "-c", seal, str(token.parent), *inner]
    found = Path(subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip())
    assert found.is_relative_to(tmp_path / "scratch")
    assert found.read_text() == "secret"
    assert stat.S_IMODE(found.stat().st_mode) == 0o600
