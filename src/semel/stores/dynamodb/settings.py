"""Settings of a DynamoDB store: table, endpoint and timeouts.

Everything is checked before anything is opened. Credentials are never among them: the SDK finds them by itself.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import parse_qsl, urlencode

from semel.errors import UsageError
from semel.stores.dynamodb.layout import ATTRIBUTES, SharedLayout
from semel.stores.settings import HOUR, Reader, StoreClock, count, read, seconds, text

_TABLE: Final = re.compile(r"[A-Za-z0-9_.-]{3,255}")
_LONGEST_NAME: Final = 255
_READERS: Final[dict[str, Reader]] = {
    **dict.fromkeys(("connect_timeout", "read_timeout", "throttled_for"), seconds(HOUR)),
    **dict.fromkeys(("region", "endpoint", "profile", "pk", "sk", "ttl"), text),
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
        pk: the partition key of a table that belongs to a service, whose items lie beside semel's; empty: a table of
            semel's own.
        sk: the sort key of such a table; empty: it has none.
        ttl: the attribute by which such a table deletes what has expired; empty: one of semel's.
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
    pk: str = ""
    sk: str = ""
    ttl: str = ""
    pool_size: int = 16
    connect_timeout: float = 3.0
    read_timeout: float = 5.0
    throttled_for: float = 1.0
    clock: StoreClock | None = None

    @property
    def layout(self) -> SharedLayout | None:
        """Where items lie in a table of a service; None for a table of semel's own."""
        if not self.pk:
            return None
        return SharedLayout(self.pk, self.sk, self.ttl) if self.ttl else SharedLayout(self.pk, self.sk)

    @property
    def name(self) -> str:
        """How the store is called in messages."""
        where = {name: getattr(self, name) for name in ("pk", "sk", "region", "endpoint") if getattr(self, name)}
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
        _check_keys(checked)
        return cls(table, **checked)


def _check_keys(given: Mapping[str, Any]) -> None:
    """Refuse keys that no table has, and attributes that semel's items have for something else."""
    names = [given[name] for name in ("pk", "sk", "ttl") if given.get(name)]
    if names and not given.get("pk"):
        raise UsageError("sk and ttl of a dynamodb URL go with pk, the partition key; nothing was opened.")
    if len(set(names)) < len(names):
        raise UsageError("pk, sk and ttl of a dynamodb URL are different attributes; nothing was opened.")
    if wrong := [name for name in names if len(name) > _LONGEST_NAME or name.startswith(ATTRIBUTES)]:
        raise UsageError(
            f"The attributes of a table's keys have at most {_LONGEST_NAME} characters and do not begin with "
            f"{ATTRIBUTES}, as those of semel do; nothing was opened. This one is {wrong[0]!r:.80}."
        )
