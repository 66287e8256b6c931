"""The options that the SDK takes over, and the folder that it sends; test_model_trainer sends it."""

import gc
import warnings
from pathlib import Path

import pytest
from pydantic import ValidationError

from raysm.core.protocol import payload

with warnings.catch_warnings():
    # The SageMaker SDK's own, as it is imported.
    warnings.simplefilter("ignore", DeprecationWarning)
    from raysm.features.training.sdk import Ray


def test_each_job_has_a_folder_of_its_own_with_the_script_that_the_sdk_runs():
    ray = Ray()
    first, second = Path(ray.driver_dir), Path(ray.driver_dir)
    assert first != second
    assert all((folder / ray.driver_script).is_file() for folder in (first, second))
    secrets = [(folder / "raysm" / payload.TOKEN).read_text() for folder in (first, second)]
    assert secrets[0] != secrets[1]


def test_the_folders_go_with_the_object_that_made_them():
    ray = Ray()
    folder = Path(ray.driver_dir)
    del ray
    gc.collect()
    assert not folder.exists()


@pytest.mark.parametrize("options", [{"silence_s": 2}, {"on_instance_loss": "wait"}])
def test_what_no_cluster_takes_is_refused_before_anything_is_sent(options):
    with pytest.raises(ValidationError):
        Ray(**options)
