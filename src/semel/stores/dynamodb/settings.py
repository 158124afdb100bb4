"""Settings of a DynamoDB store: table, endpoint and timeouts.

Everything is checked before anything is opened. Credentials are never among them: the SDK finds them by itself.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import parse_qsl, urlencode

from semel.errors import UsageError
from semel.stores.settings import HOUR, Reader, StoreClock, count, read, seconds, text

_TABLE: Final = re.compile(r"[A-Za-z0-9_.-]{3,255}")
_READERS: Final[dict[str, Reader]] = {
    **dict.fromkeys(("connect_timeout", "read_timeout", "throttled_for"), seconds(HOUR)),
    **dict.fromkeys(("region", "endpoint", "profile"), text),
    "pool_size": count(1, 1000),
}


@dataclass(frozen=True, slots=True)
class Settings:
    """What a store was given.

    Attributes:
        table: the name of the table.
        region: the region it is in; empty: what the SDK finds in its own configuration.
        endpoint: another address than the one of the region.
        profile: which profile of the SDK's configuration to use.
        pool_size: how many requests a driver has on their way at most.
        connect_timeout: how long to wait for a connection, in seconds.
        read_timeout: how long to wait for the reply to a request, in seconds.
        throttled_for: how long a request that was throttled is sent again before the engine hears of it, in seconds.
        clock: a virtual clock instead of the service's, for tests alone.
    """

    table: str
    region: str = ""
    endpoint: str = ""
    profile: str = ""
    pool_size: int = 16
    connect_timeout: float = 3.0
    read_timeout: float = 5.0
    throttled_for: float = 1.0
    clock: StoreClock | None = None

    @property
    def name(self) -> str:
        """How the store is called in messages."""
        where = {name: getattr(self, name) for name in ("region", "endpoint") if getattr(self, name)}
        return f"dynamodb://{self.table}" + (f"?{urlencode(where, safe=':/')}" if where else "")

    @classmethod
    def of(cls, url: str, **given: Any) -> Settings:
        """The settings in `url` and in `given`, which go first.

        Raises:
            UsageError: one of them is not usable.
        """
        table, _, query = url.removeprefix("dynamodb://").partition("?")
        table = table.rstrip("/")
        if not _TABLE.fullmatch(table):
            message = (
                "A dynamodb URL names a table of 3 to 255 letters, digits, '_', '-' and '.'; nothing was opened. "
                "Write dynamodb://table?region=eu-west-1."
            )
            raise UsageError(message)
        own = dict(parse_qsl(query, keep_blank_values=True))
        known = sorted(name for name in cls.__dataclass_fields__ if name not in ("table", "clock"))
        unknown = sorted(name for name in own if name not in known)
        if unknown:
            message = f"A dynamodb URL has no setting {', '.join(unknown)}; nothing was opened. It has {known}."
            raise UsageError(message)
        checked = read({**own, **given}, _READERS)
        if "@" in checked.get("endpoint", ""):
            message = (
                "The endpoint of a dynamodb URL holds no user and no password; nothing was opened. The SDK finds "
                "credentials where it always does, for example in its profile."
            )
            raise UsageError(message)
        return cls(table, **checked)
