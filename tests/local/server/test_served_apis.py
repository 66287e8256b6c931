import pytest

from raysm.contract.job_api import APIS, PROCESSING, TRAINING
from raysm.local.server.served_apis import served
from raysm.local.server.validation import ApiError
from tests.support.api_requests import processing_parameters, training_parameters

PARAMETERS = {TRAINING: training_parameters, PROCESSING: processing_parameters}


@pytest.mark.parametrize("api", APIS, ids=lambda api: api.kind)
def test_every_api_is_served_and_its_requests_name_an_image(api):
    assert served(api).image(PARAMETERS[api]()) == "image:latest"


@pytest.mark.parametrize("api", APIS, ids=lambda api: api.kind)
def test_what_is_left_to_the_image_is_refused_since_nothing_is_known_of_it(api):
    with pytest.raises(ApiError, match="give ContainerEntrypoint"):
        served(api).check(PARAMETERS[api]())
