from pathlib import Path

from raysm.contract.paths import Paths


def test_a_training_jobs_files_lie_where_sagemaker_puts_them():
    paths = Paths()
    assert paths.resource_config == Path("/opt/ml/input/config/resourceconfig.json")
    assert paths.hyperparameters == Path("/opt/ml/input/config/hyperparameters.json")
    assert paths.input_data_config == Path("/opt/ml/input/config/inputdataconfig.json")
    assert paths.payload == Path("/opt/ml/input/data/raysm")
    assert paths.model == Path("/opt/ml/model")
    assert paths.failure == Path("/opt/ml/output/failure")
    assert paths.checkpoints == Path("/opt/ml/checkpoints")


def test_a_processing_jobs_files_lie_where_sagemaker_puts_them():
    paths = Paths(processing=True)
    assert paths.resource_config == Path("/opt/ml/config/resourceconfig.json")
    assert paths.processing_config == Path("/opt/ml/config/processingjobconfig.json")
    assert paths.channel("matrix") == Path("/opt/ml/processing/input/matrix")
    assert paths.failure == Path("/opt/ml/output/message")
