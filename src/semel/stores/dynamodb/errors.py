"""Errors of DynamoDB and its SDK, translated into semel's.

- A translated error says what happened, whether anything was recorded and what to do, and carries its cause.
- Only listed errors are translated; any other is a bug and is raised as it is.
"""

from __future__ import annotations

from enum import Enum
from typing import Any, Final

from botocore import exceptions

from semel.errors import SchemaOutdated, SemelError, StoreMisconfigured, StoreUnavailable
from semel.stores.dynamodb.commands import Cancelled, NoIndex, Refused, TooLarge


class ErrorKind(Enum):
    """Kinds of errors; the value says what to do."""

    THROTTLED = "the table or its partition is at its limit; raise its capacity, or spread the load"
    CONFLICT = "another transaction was writing the same item; try again"
    UNREACHED = "look whether the service runs, and at the region and the endpoint in the URL"
    LOST = "try again once the service can be reached"
    DENIED = "look at the credentials, the IAM policy of the role and the clock of this machine"
    MISSING = "look at the name and the region, or run `semel migrate`"
    UNCONFIGURED = "name a region in the URL, ?region=eu-west-1, or in the SDK's configuration"


_CODES: Final = {
    ErrorKind.THROTTLED: (
        "LimitExceededException",
        "ProvisionedThroughputExceededException",
        "RequestLimitExceeded",
        "ThrottledException",
        "Throttling",
        "ThrottlingException",
        "TooManyRequestsException",
    ),
    ErrorKind.CONFLICT: ("TransactionConflictException", "TransactionInProgressException"),
    ErrorKind.LOST: (
        "InternalFailure",
        "InternalServerError",
        "InternalServerException",
        "RequestTimeout",
        "RequestTimeoutException",
        "ServiceUnavailable",
        "ServiceUnavailableException",
    ),
    ErrorKind.DENIED: (
        "AccessDenied",
        "AccessDeniedException",
        "ExpiredToken",
        "ExpiredTokenException",
        "IncompleteSignatureException",
        "InvalidClientTokenId",
        "InvalidSignatureException",
        "KMSAccessDeniedException",
        "KMSDisabledException",
        "MissingAuthenticationTokenException",
        "RequestExpired",
        "SignatureDoesNotMatch",
        "UnrecognizedClientException",
    ),
    ErrorKind.MISSING: ("ResourceInUseException", "ResourceNotFoundException", "TableNotFoundException"),
}
_BY_CODE: Final = {code: kind for kind, codes in _CODES.items() for code in codes}
_CLASSES: Final = (
    (exceptions.ConnectTimeoutError, ErrorKind.UNREACHED),
    (exceptions.HTTPClientError, ErrorKind.LOST),
    (exceptions.ConnectionError, ErrorKind.LOST),
    (exceptions.NoCredentialsError, ErrorKind.DENIED),
    (exceptions.PartialCredentialsError, ErrorKind.DENIED),
    (exceptions.CredentialRetrievalError, ErrorKind.DENIED),
    (exceptions.MetadataRetrievalError, ErrorKind.DENIED),
    (exceptions.TokenRetrievalError, ErrorKind.DENIED),
    (exceptions.UnauthorizedSSOTokenError, ErrorKind.DENIED),
    (exceptions.NoRegionError, ErrorKind.UNCONFIGURED),
    (exceptions.InvalidRegionError, ErrorKind.UNCONFIGURED),
    (exceptions.ProfileNotFound, ErrorKind.UNCONFIGURED),
)
AGAIN: Final = frozenset({ErrorKind.THROTTLED, ErrorKind.CONFLICT})
"""Nothing was written, and the same request may succeed in a moment."""
_CONFLICT: Final = "TransactionConflict"
_PASSING: Final = frozenset({"ProvisionedThroughputExceeded", "ThrottlingError", _CONFLICT})
_UNSENT: Final = frozenset({"ClientConnectorError", "NewConnectionError", "gaierror"})
_SERVER_FAULT: Final = 500


def expected_reply(error: Exception) -> Refused | TooLarge | NoIndex | Cancelled | None:
    """The reply that an error stands for, where it is one of those a plan reckons with."""
    match code_of(error):
        case "ConditionalCheckFailedException":
            return Refused(response_of(error).get("Item"))
        case "TransactionCanceledException" if error_kind_of(error) is None:
            return Cancelled(tuple(response_of(error).get("CancellationReasons", [])))
        case "ValidationException" if "maximum allowed size" in str(error):
            return TooLarge()
        case "ValidationException" | "ResourceNotFoundException" if "specified index" in str(error):
            return NoIndex()
    return None


def error_kind_of(error: Exception) -> ErrorKind | None:
    """The kind of an error; None where it is a bug."""
    code = code_of(error)
    if code == "TransactionCanceledException":
        return _of_a_transaction(error)
    if code in _BY_CODE:
        return _BY_CODE[code]
    if code == "ValidationException" and "does not match the schema" in str(error):
        return ErrorKind.MISSING
    if code and status_of(error) >= _SERVER_FAULT:
        return ErrorKind.LOST
    if isinstance(error, exceptions.EndpointConnectionError) and _is_unsent(error):
        return ErrorKind.UNREACHED
    return next((kind for error_class, kind in _CLASSES if isinstance(error, error_class)), None)


def _is_unsent(error: Exception) -> bool:
    """Whether no connection came about: aiobotocore uses one class for that and for one that broke later."""
    cause = getattr(error, "kwargs", {}).get("error")
    return bool({kind.__name__ for kind in type(cause).__mro__} & _UNSENT)


def _of_a_transaction(error: Exception) -> ErrorKind | None:
    """What passes by itself, if that is all that stood in the way."""
    codes = {reason.get("Code", "None") for reason in response_of(error).get("CancellationReasons", [])} - {"None"}
    if not codes or not codes <= _PASSING:
        return None
    return ErrorKind.CONFLICT if _CONFLICT in codes else ErrorKind.THROTTLED


def response_of(error: Exception) -> dict[str, Any]:
    """What the service sent with an error; nothing where it sent none."""
    response = getattr(error, "response", None)
    return response if isinstance(response, dict) else {}


def code_of(error: Exception) -> str:
    """The service's name for an error."""
    return str(response_of(error).get("Error", {}).get("Code", ""))


def status_of(error: Exception) -> int:
    """The status of the reply."""
    return int(response_of(error).get("ResponseMetadata", {}).get("HTTPStatusCode", 0))


def translate_error(error: Exception, name: str) -> Exception:
    """`error` as semel's own, or itself where it is a bug."""
    kind = error_kind_of(error)
    if kind is None:
        return error
    known = _error_of_kind(kind, f"{type(error).__name__}: {str(error)[:200]}", name)
    known.__cause__ = error
    return known


def _error_of_kind(kind: ErrorKind, said: str, name: str) -> SemelError:
    do = f"{kind.value[0].upper()}{kind.value[1:]}."
    match kind:
        case ErrorKind.MISSING:
            return SchemaOutdated(f"{name} is no table of this release ({said}); nothing ran. {do}")
        case ErrorKind.UNCONFIGURED | ErrorKind.DENIED:
            return StoreMisconfigured(
                f"{name} cannot be used ({said}); nothing was recorded. {do} Trying again does not help."
            )
        case ErrorKind.UNREACHED:
            return StoreUnavailable(f"{name} cannot be reached ({said}); nothing was recorded. {do}")
        case ErrorKind.LOST:
            return StoreUnavailable(f"{name} did not answer ({said}); whether it was recorded is not known. {do}")
    conflict = kind is ErrorKind.CONFLICT  # it did answer: that is no reason to leave the service alone
    return StoreUnavailable(f"{name} did not do it ({said}); nothing was recorded. {do}", conflict=conflict)
