"""The REST of AWS Batch: a method and a path flow in, the operation of botocore's model flows out; and its checks."""

import functools
import re
from collections.abc import Mapping
from typing import Any

from raysm.contract.service_model import loader, violations_in
from raysm.local.server.api_error import ApiError
from raysm.local.server.validation import refuse

__all__ = ["SERVICE", "TAGS", "check", "client_error", "operation_of"]

SERVICE = "batch"
TAGS = "/v1/tags/"
"""Begins the only paths that hold a value."""


def client_error(message: str) -> ApiError:
    """Return how Batch refuses a request that cannot be: it has this one code for all of them."""
    return ApiError("ClientException", f"Error executing request, Exception : {message}")


@functools.cache
def _model() -> Any:
    # Read when Batch is first asked: a server that nobody sends Batch's requests starts as fast as before.
    from botocore.model import ServiceModel

    return ServiceModel(loader().load_service_model(SERVICE, "service-2"), SERVICE)


@functools.cache
def _operations() -> Mapping[tuple[str, str], str]:
    model = _model()
    facts = {name: model.operation_model(name).http for name in model.operation_names}
    # The path as far as the value that it holds, where it holds one.
    return {(http["method"], re.sub(r"\{.*", "", http["requestUri"])): name for name, http in facts.items()}


def operation_of(method: str, path: str) -> str:
    """Return what is asked for, ``SubmitJob``; empty where this botocore knows no such path."""
    return _operations().get((method, TAGS if path.startswith(TAGS) else path), "")


def check(operation: str, request: Mapping[str, Any]) -> None:
    """Check a request against the model.

    Raises:
        ApiError: ClientException, with all that is wrong.
    """
    refuse(violations_in(request, _model().operation_model(operation).input_shape, takes_files=True), client_error)
