"""Clients of Amazon's services for the adapters of SQS and EventBridge: the address, the client, and what errors mean.

- An address is `sqs://eu-west-1`: the region, and as settings another `endpoint` or a `profile`. Credentials are never
  in it: the SDK finds them by itself.
- The SDK repeats nothing by itself: the caller knows whether a request may be sent again.
"""

from __future__ import annotations

import asyncio
import functools
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit

from semel.errors import UsageError
from semel.extras import requires

with requires("semel.events.brokers.sqs", "aiobotocore"):
    from aiobotocore.session import AioSession
    from aiohttp import ClientError as HttpError
    from botocore import exceptions
    from botocore.config import Config
    from botocore.loaders import create_loader

POOL: Final = 64
"""Connections of one client."""
_CONNECT_WITHIN: Final = 5.0
_REGION: Final = re.compile(r"[a-z0-9-]{0,40}")
_SETTINGS: Final = ("endpoint", "profile")
_PASSING: Final = frozenset(
    {
        "InternalError",
        "InternalException",
        "InternalFailure",
        "KMS.ThrottlingException",
        "KmsThrottled",
        "OverLimit",
        "RequestThrottled",
        "RequestTimeout",
        "ServiceUnavailable",
        "ServiceUnavailableException",
        "Throttling",
        "ThrottlingException",
        "TooManyRequestsException",
    }
)
"""What is over in a moment: the same request may be sent again."""
_SERVER_FAULT: Final = 500
_LOST: Final = (exceptions.ConnectionError, exceptions.HTTPClientError, HttpError, OSError, asyncio.TimeoutError)


@dataclass(frozen=True, slots=True)
class Address:
    """Where a service is.

    Attributes:
        region: empty: what the SDK finds in its own configuration.
        endpoint: another address than that of the region.
        profile: which profile of the SDK's configuration to use.
    """

    region: str = ""
    endpoint: str = ""
    profile: str = ""

    @classmethod
    def of(cls, url: str, scheme: str) -> Address:
        """The address that a URL names.

        Raises:
            UsageError: it names none.
        """
        at = urlsplit(url)
        own = dict(parse_qsl(at.query, keep_blank_values=True))
        unknown = sorted(set(own) - set(_SETTINGS))
        endpoint = own.get("endpoint", "")
        is_one = at.scheme == scheme and _REGION.fullmatch(at.netloc) and at.path in ("", "/") and not unknown
        if not is_one or "@" in endpoint or (endpoint and urlsplit(endpoint).scheme not in ("http", "https")):
            raise UsageError(
                f"The address is {scheme}://REGION, with ?endpoint=https://… or ?profile=… where they are needed, and "
                f"without a user or a password, which the SDK finds by itself; nothing was sent."
            )
        return cls(at.netloc, endpoint, own.get("profile", ""))


@asynccontextmanager
async def connect(service: str, address: Address, *, read_within: float, **options: Any) -> AsyncIterator[Any]:
    """A client of the running event loop.

    Raises:
        UsageError: there is no region, or no such profile.
    """
    config = Config(
        connect_timeout=_CONNECT_WITHIN,
        read_timeout=read_within,
        max_pool_connections=POOL,
        retries={"total_max_attempts": 1, "mode": "standard"},
        user_agent_extra="semel",
    )
    given = {
        "region_name": address.region or None,
        "endpoint_url": address.endpoint or None,
        "config": config,
        **options,
    }
    with translating(service):
        session = AioSession(profile=address.profile or None)
        session.register_component("data_loader", _loader())
        entered = session.create_client(service, **given)
        client = await entered.__aenter__()
    try:
        yield client
    finally:
        await entered.__aexit__(None, None, None)


@functools.lru_cache(maxsize=1)
def _loader() -> Any:
    """What reads the descriptions of services, which are large; they are the same for every event loop and thread."""
    return create_loader()


@contextmanager
def translating(service: str) -> Iterator[None]:
    """Say in the words of the adapters what went wrong with a request.

    Raises:
        ConnectionError: the service, or who gives out credentials, cannot be reached, or has too much to do; the same
            may be asked again.
        UsageError: the program, the credentials or the settings of the service have to be changed.
    """
    try:
        yield
    except _LOST as error:
        raise ConnectionError(f"{service} could not be reached ({type(error).__name__})") from error
    except exceptions.ClientError as error:
        code, text = code_of(error), error.response.get("Error", {}).get("Message", "")
        if is_passing(error):
            raise ConnectionError(f"{service} is not available for now ({code})") from error
        raise UsageError(f"{service} refused the request ({code}): {text:.200}") from error
    except (exceptions.CredentialRetrievalError, exceptions.MetadataRetrievalError) as error:
        # Those of a role run out and are fetched again by the SDK: who gives them out may be silent for a moment.
        raise ConnectionError(f"{service} could not be asked, for want of credentials ({error})") from error
    except exceptions.BotoCoreError as error:
        raise UsageError(f"{service} could not be asked: {error}. Nothing was sent.") from error


def code_of(error: exceptions.ClientError) -> str:
    """The code of a refusal, without the prefix of the old protocol."""
    return str(error.response.get("Error", {}).get("Code", "")).removeprefix("AWS.SimpleQueueService.")


def is_passing(error: exceptions.ClientError) -> bool:
    """Whether the same request may succeed in a moment."""
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    return status >= _SERVER_FAULT or is_passing_code(code_of(error))


def is_passing_code(code: str) -> bool:
    """Whether an entry of a batch that failed with this code may succeed in a moment."""
    return code in _PASSING
