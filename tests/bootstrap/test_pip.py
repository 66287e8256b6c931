"""pip, asked and told."""

import os
import sys

import pytest

from raysm.bootstrap.pip import Pip, PipFailed
from tests.support.wheels import make_wheel


def pip(folder, **variables):
    environment = {"PATH": os.environ["PATH"], "PIP_CONFIG_FILE": os.devnull, "PIP_NO_INDEX": "1"} | variables
    return Pip(folder, environment)


def test_what_pip_would_install_names_the_very_file_and_is_then_installed(tmp_path):
    wheel = make_wheel(tmp_path / "wheels", "travelled")
    links = ["--find-links", str(wheel.parent)]
    exact = pip(tmp_path).resolve([*links, "travelled>=1"])
    assert exact == [f"travelled @ {wheel.as_uri()}"]
    assert not (tmp_path / "site").exists()
    pip(tmp_path).install(exact, tmp_path / "site", links)
    assert (tmp_path / "site" / "travelled.py").read_text() == "VALUE = 42\n"


def test_what_the_image_has_is_not_installed_again(tmp_path):
    assert pip(tmp_path).resolve(["pytest"]) == []


def test_what_pip_cannot_do_is_told_by_its_last_words_and_not_written_to_the_log(tmp_path, capfd):
    with pytest.raises(PipFailed, match="No matching distribution found for no-such-package"):
        pip(tmp_path).resolve(["no-such-package"])
    assert capfd.readouterr().err == ""


def test_the_image_s_own_settings_are_known_and_its_variables_count_most(tmp_path):
    config = tmp_path / "pip.conf"
    config.write_text("[install]\nindex-url = https://of-install/simple\n[global]\nindex-url = https://of-all/simple\n")
    told = pip(tmp_path, PIP_CONFIG_FILE=str(config)).settings()
    assert told["index-url"] == "https://of-install/simple"
    told = pip(tmp_path, PIP_CONFIG_FILE=str(config), PIP_INDEX_URL="https://of-variable/simple").settings()
    assert told["index-url"] == "https://of-variable/simple"


@pytest.mark.parametrize(
    ("module", "words"),
    [
        ("import sys; sys.exit('No module named pip')", f"{sys.executable} has no pip"),
        ("import sys; sys.exit('no such option: --report')", "pip is older than 22.2"),
    ],
)
def test_an_image_s_pip_that_is_not_there_or_too_old_is_said(tmp_path, module, words):
    (tmp_path / "pip.py").write_text(module)
    with pytest.raises(PipFailed, match=words.replace("/", ".")):
        pip(tmp_path, PYTHONPATH=str(tmp_path)).resolve(["anything"])
