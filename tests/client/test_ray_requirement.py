"""Requirements of a Ray that raysm cannot work with are refused while nothing is spent."""

import pytest

from raysm.client.checks import check_ray
from raysm.client.submit import prepare
from raysm.errors import InvalidRequest
from raysm.request import Script


@pytest.mark.parametrize("line", ["ray==2.56.0", "ray[default] == 2.56.*", "Ray<2.60", "ray>=2.61", "ray~=2.56.0"])
def test_another_ray_is_refused_with_the_one_that_will_do(line):
    with pytest.raises(InvalidRequest, match=r"asks for a Ray that raysm cannot work with: it needs ray>=2\.60,<2\.61"):
        check_ray(["tqdm", line])


@pytest.mark.parametrize(
    "line",
    ["ray", "ray[train]>=2.50", "ray==2.60.1", "ray~=2.60", "rayleigh==2.56", "ray==2.56; python_version < '3.9'"],
)
def test_what_leaves_room_for_raysm_s_ray_passes(line):
    check_ray([line])


@pytest.mark.parametrize("line", ["ray @ https://host/ray-2.56.0-py3-none-any.whl", "ray==", "# ray==2.56", ""])
def test_what_only_pip_can_judge_is_left_to_it(line):
    check_ray([line])


def test_a_job_that_requires_another_ray_is_not_prepared(tmp_path):
    (tmp_path / "a.py").write_text("")
    with pytest.raises(InvalidRequest, match="the requirement 'ray==2.56.0' asks for a Ray"):
        prepare(Script(str(tmp_path / "a.py")), requirements=["ray==2.56.0"])
