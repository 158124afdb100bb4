"""Clients of the SDK, in both colours.

What always holds: the SDK never sends anything again by itself, because a request whose reply was lost must be judged
by what it left behind. Sessions are made once for each process: they hold the descriptions of the service, which are
large, and the credentials, which they renew.
"""

from __future__ import annotations

import functools
import os
import threading
from typing import Any

from semel.core.extras import requires
from semel.stores.dynamodb.settings import Settings


def make_client(settings: Settings) -> Any:
    """A client for threads.

    Raises:
        DependencyMissing: the SDK is not installed.
    """
    with requires("dynamodb://", "boto3"):
        session, lock = _session(os.getpid(), settings.profile)
        with lock:  # a session is not made for several threads, a client is
            return session.client("dynamodb", **_arguments(settings))


def make_async_client(settings: Settings) -> Any:
    """A client for the running event loop, to be entered.

    Raises:
        DependencyMissing: the SDK is not installed.
    """
    with requires("dynamodb://", "aiobotocore"):
        return _async_session(os.getpid(), settings.profile).create_client("dynamodb", **_arguments(settings))


@functools.lru_cache(maxsize=8)
def _session(_process: int, profile: str) -> tuple[Any, threading.Lock]:
    import boto3

    return boto3.session.Session(profile_name=profile or None), threading.Lock()


@functools.lru_cache(maxsize=8)
def _async_session(_process: int, profile: str) -> Any:
    from aiobotocore.session import AioSession

    return AioSession(profile=profile or None)


def _arguments(settings: Settings) -> dict[str, Any]:
    from botocore.config import Config

    config = Config(
        connect_timeout=settings.connect_timeout,
        read_timeout=settings.read_timeout,
        max_pool_connections=settings.pool_size,
        retries={"total_max_attempts": 1, "mode": "standard"},
        parameter_validation=False,
        user_agent_extra="semel",
    )
    return {
        "region_name": settings.region or None,
        "endpoint_url": settings.endpoint or None,
        "config": config,
    }
