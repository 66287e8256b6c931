"""Refusals as AWS words them."""

__all__ = ["ApiError", "not_found", "validation"]


class ApiError(Exception):
    """A refusal that the caller receives.

    Attributes:
        code: AWS's error code.
        message: For people.
        status: Of HTTP.
    """

    def __init__(self, code: str, message: str, status: int = 400) -> None:
        """Keep the parts."""
        super().__init__(message)
        self.code = code
        self.message = message
        self.status = status


def validation(message: str) -> ApiError:
    """Return the refusal of a request that cannot be."""
    return ApiError("ValidationException", message)


def not_found(what: str = "") -> ApiError:
    """Return what SageMaker answers about a job that is not there: a ValidationException, for historical reasons."""
    return validation("Requested resource not found." + (f" ({what})" if what else ""))
