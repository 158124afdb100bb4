"""Settings of a cache in front of a store: where it is, how long it keeps records, how long it may take.

- Everything is checked before anything is opened.
- Processes that share a database give the same settings, because each has to know how long the others may hold what was
  erased.
- The URL, which may hold a password, is in no representation and no message.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl, urlencode

from semel.errors import UsageError
from semel.stores.settings import DAY, Reader, count, join_url, seconds, split_url
from semel.validation import Duration, refuses_unknown

PATTERN: Final = "semel-cache:{operation}:{digest}"
"""How the key of an entry is spelt: never like the key of a record, which begins with `semel:`."""

_READERS: Final[dict[str, Reader]] = {
    **dict.fromkeys(("cap", "timeout", "local_for"), seconds(DAY)),
    **dict.fromkeys(("local", "local_bytes"), count(0)),
}
_SCHEMES: Final = frozenset({"redis", "rediss", "redis+cluster", "redis+sentinel"})


@refuses_unknown("A cache", UsageError)
@dataclass(frozen=True, slots=True)
class Cache:
    """A cache of completed records in front of a SQL store. A number stands for so many seconds.

    Attributes:
        url: a Redis, with settings of its own as for a store; None keeps records in the process alone.
        cap: the longest time that Redis keeps a record.
        timeout: how long Redis may take, to connect and to answer, before the store is asked instead.
        local: how many records the process itself keeps at most; 0 keeps none.
        local_for: for how long it does.
        local_bytes: how many bytes they may take together, roughly.
    """

    url: str | None = field(default=None, repr=False)
    _: KW_ONLY
    cap: float = 600.0
    timeout: float = 0.1
    local: int = 0
    local_for: float = 5.0
    local_bytes: int = 16_777_216

    if TYPE_CHECKING:

        def __init__(
            self,
            url: str | None = None,
            *,
            cap: Duration = 600.0,
            timeout: Duration = 0.1,
            local: int = 0,
            local_for: Duration = 5.0,
            local_bytes: int = 16_777_216,
        ) -> None: ...

    def __post_init__(self) -> None:
        for name, reader in _READERS.items():
            object.__setattr__(self, name, reader(name, getattr(self, name)))
        if self.url is not None and self.url.partition("://")[0].lower() not in _SCHEMES:
            raise _refusal("The cache of a store is a Redis")
        if self.url is None and not self.local:
            raise _refusal("A cache without a URL is one in the process, and local= says how many records it keeps")

    @classmethod
    def of(cls, given: object) -> Cache:
        """The cache that `cache=` means: a URL, whose query may hold the settings, or a `Cache`.

        Raises:
            UsageError: it is neither, or a setting is not usable.
        """
        if isinstance(given, Cache):
            return given
        if not isinstance(given, str):
            raise _refusal(f"cache= is a URL or a Cache, not {type(given).__name__}")
        parts = split_url(given)
        pairs = parse_qsl(parts.query, keep_blank_values=True)
        own: dict[str, Any] = {name: value for name, value in pairs if name in _OWN}
        rest = urlencode([pair for pair in pairs if pair[0] not in _OWN], safe="{}:")
        return replace(cls(join_url(parts._replace(query=rest))), **own)


_OWN: Final = frozenset(Cache.__dataclass_fields__) - {"url"}


def _refusal(why: str) -> UsageError:
    return UsageError(f"{why}; nothing was opened. Write cache='redis://host:6379/0', or Cache(url, local=10_000).")
