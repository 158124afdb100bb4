"""The two classes people use: a sync and an async engine, opened on a store that is given by URL, path or object.

And the check of signed keys, which looks at the clock.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib.util import find_spec
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self, TypeVar, cast

from semel.core.circuit import Limits
from semel.core.fingerprint import Secret
from semel.core.key import KeyRing, KeyValue
from semel.core.observer import Logging, Observer
from semel.core.policy import Policy
from semel.core.sealing.values import Sealer
from semel.core.store import Store, libraries_of
from semel.engine.async_engine import AsyncEngine, AsyncSemelBase
from semel.engine.clock import Clock, SystemClock
from semel.engine.engine import EngineBase, SemelBase
from semel.engine.sync_engine import SyncEngine, SyncSemelBase
from semel.erasure import AsyncErasing, SyncErasing
from semel.errors import UsageError
from semel.extras import missing_error
from semel.settings import Settings, find_file, read_settings
from semel.validation import BELONGS

if TYPE_CHECKING:
    from semel.stores.cache import Cache

Place = object
"""A URL, a path, a store, or an engine or pool of a library that is known."""

_SYNC: Final = 0
_ASYNC: Final = 1
_ENGINES: Final[tuple[Any, Any]] = (SyncEngine, AsyncEngine)


def verify_key(
    text: object, *, secrets: KeyRing | Mapping[str, bytes | str], tenant: KeyValue, now: datetime | None = None
) -> str:
    """The 64 hex digits of a signed key, which is what to use as the key.

    Args:
        text: the signed key, as the client sent it.
        secrets: the secrets by their names. Two at a time let clients change from one to the next.
        tenant: who sent it, as authenticated.
        now: the moment at which it must not have expired; the present one where none is given.

    Raises:
        KeyInvalid: it is no signed key, was signed with an unknown secret, for another tenant, or has been changed.
        KeyExpired: it is all right but for its expiry.
    """
    ring = secrets if isinstance(secrets, KeyRing) else KeyRing(secrets)
    return ring.verify(text, tenant, datetime.now(UTC) if now is None else now)


def open_store(place: Place, **settings: Any) -> Store:
    """The store at `place`. Nothing is connected yet.

    Raises:
        UsageError: the place is neither a URL, a path nor a store, or settings were given for an open store.
    """
    if isinstance(place, str):
        from semel.stores.urls import store_from_url

        return store_from_url(place, **settings)
    if isinstance(place, PathLike):
        from semel.stores.settings import make_store
        from semel.stores.sqlite import SqliteStore

        return make_store("sqlite", SqliteStore, place, **settings)
    if hasattr(place, "plan"):
        return _with_own_settings(cast("Store", place), settings)
    from semel.stores.urls import store_on

    found = store_on(place, **settings)
    if found is not None:
        return found
    message = (
        f"{type(place).__qualname__} is no store; nothing was opened. Give a URL such as sqlite:///semel.db, the path "
        f"of a file, an engine or pool, or a store (whose settings are its own)."
    )
    raise UsageError(message)


def _with_own_settings(store: Store, settings: dict[str, Any]) -> Store:
    """A store that is already made; what comes with it can only have been meant for something else.

    Raises:
        UsageError: settings were given.
    """
    if not settings:
        return store
    name = min(settings)
    hint = BELONGS.get(name, "Give it to the store itself.")
    message = f"{store.name} is already made, so the setting {name!r} is of no use here; nothing was opened. {hint}"
    raise UsageError(message)


def _check_installed(store: Store, kind: int) -> None:
    """Refuse a store whose client library of this kind is missing now, not at the first call; nothing is loaded.

    Raises:
        DependencyMissing: it is not installed.
    """
    libraries = libraries_of(store)
    if libraries is not None and find_spec(libraries[kind]) is None:
        raise missing_error(f"{store.name.partition(':')[0]}://", libraries[kind])


def _with_tiers(store: Store, cache: object, observer: Observer | None, seal: Sealer | None) -> Store:
    """The store, sealed and behind a cache where one was asked for.

    Raises:
        UsageError: what was given does not seal.
    """
    if seal is not None:
        from semel.stores.sealing import SealedStore

        if not (hasattr(seal, "seal") and hasattr(seal, "open")):
            message = f"seal= takes a keyring, not {type(seal).__name__}; nothing was opened. Write seal=Keyring(…)."
            raise UsageError(message)
        store = SealedStore(store, seal)
    if cache is None:
        return store
    from semel.stores.cache import Cache, TieredStore

    return TieredStore(store, Cache.of(cache), observer=observer, sealer=seal)


def keyring_of(settings: Settings) -> Sealer | None:
    """The keyring that the table `[security]` describes; None: nothing is sealed.

    Raises:
        UsageError: keys are named without one that seals, or one is not usable.
        DependencyMissing: cryptography is not installed.
    """
    security = settings.security
    active, file = security.get("active_key"), security.get("key_file")
    if active is None:
        if file is not None:
            raise UsageError(
                "security.key_file names keys, and security.active_key none that seals; nothing was opened."
            )
        return None
    from semel.security import Keyring

    plain = security.get("accept_plain", True)
    if file is None:
        return Keyring.from_environment(active=active, accept_plain=plain)
    return Keyring.from_file(file, active=active, accept_plain=plain)


def _open_configured_store(settings: Settings, kind: int, observer: Observer, clock: Clock) -> Store:
    """The store that settings name, with its pool; one that keeps nothing where semel is switched off.

    Raises:
        UsageError: the address is not understood, or such a store has no use for a setting of the pool.
        DependencyMissing: its client library is not installed.
    """
    from semel.stores.urls import pool_settings, split_scheme

    scheme, _ = split_scheme(settings.store)
    pool = dict(settings.pool)
    logged = pool.pop("log_statements", False)
    given = pool_settings(scheme, pool)
    if not settings.enabled:
        from semel.stores.unprotected import UnprotectedStore

        return UnprotectedStore(f"{scheme or 'path'}: switched off", observer, clock.monotonic)
    store = open_store(settings.store if scheme else Path(settings.store), **given)
    _check_installed(store, kind)
    if not logged:
        return store
    from semel.stores.statement_log import LoggedStore

    return LoggedStore(store)


def _configured_observer(settings: Settings) -> Observer:
    """The observer that settings ask for."""
    if not settings.telemetry:
        return Logging()
    from semel.telemetry.configured import observer_of

    return observer_of(settings.telemetry)


E = TypeVar("E", bound=EngineBase)


class _OnPlace(SemelBase[E]):
    """On a store that is given by URL, path or object; it comes before the methods of its kind."""

    _kind: ClassVar[int]

    @classmethod
    def from_settings(
        cls,
        settings: str | PathLike[str] | Settings | None = None,
        *,
        observer: Observer | None = None,
        clock: Clock | None = None,
        fingerprint_secret: Secret | Sequence[Secret | None] | None = None,
        seal: Sealer | None = None,
    ) -> Self:
        """An engine as a settings file and the environment say. Nothing is connected yet.

        Args:
            settings: the path of the file, or settings that were read. None: the file that `SEMEL_SETTINGS` names, else
                `semel.toml` in the working directory, else the environment alone.
            observer: told what happens; by default what the table `[telemetry]` asks for, else `logging`.
            clock: what waiting is measured by; tests put a virtual one here.
            fingerprint_secret: keys the digests of what was asked; of several the first makes them, and all compare.
            seal: seals what is stored, in the place of the keys that `[security]` names.

        Raises:
            UsageError: the file cannot be read, a name is unknown, or a value is not usable.
        """
        if not isinstance(settings, Settings):
            settings = read_settings(find_file() if settings is None else settings)
        observer, clock = observer or _configured_observer(settings), clock or SystemClock()
        made = cls(
            _open_configured_store(settings, cls._kind, observer, clock),
            cache=settings.cache if settings.enabled else None,
            policy=settings.default_policy(),
            observer=observer,
            clock=clock,
            limits=settings.to_limits(),
            fingerprint_secret=fingerprint_secret,
            seal=(seal or keyring_of(settings)) if settings.enabled else None,
        )
        made._engine.declare(settings.operations)
        return made

    def __init__(
        self,
        store: Place,
        *,
        cache: str | Cache | None = None,
        policy: Policy | None = None,
        observer: Observer | None = None,
        clock: Clock | None = None,
        limits: Limits | None = None,
        fingerprint_secret: Secret | Sequence[Secret | None] | None = None,
        seal: Sealer | None = None,
        **settings: Any,
    ) -> None:
        found = open_store(store, **settings)
        _check_installed(found, self._kind)
        engine = _ENGINES[self._kind](
            _with_tiers(found, cache, observer, seal),
            policy=policy,
            observer=observer,
            clock=clock,
            limits=limits,
            fingerprint_secret=fingerprint_secret,
        )
        super().__init__(engine)


class Semel(_OnPlace[SyncEngine], SyncErasing, SyncSemelBase):
    """Makes operations happen once, for code that calls and waits.

    Args:
        store: a URL (`sqlite:///semel.db`, `memory://`), the path of a SQLite file, or a store.
        cache: a cache of completed records in front of a SQL store: the URL of a Redis, or a `Cache`.
        policy: the policy of operations that name none.
        observer: told what happens; by default it goes to `logging`.
        clock: what waiting is measured by; tests put a virtual one here.
        limits: how much a store in trouble is asked, how many may wait for it, and how many for others.
        fingerprint_secret: keys the digests of what was asked; of several the first makes them, and all compare.
        seal: seals what is stored: a `semel.security.Keyring`.
        settings: settings of the store, as its reference page names them.
    """

    _kind = _SYNC


class AsyncSemel(_OnPlace[AsyncEngine], AsyncErasing, AsyncSemelBase):
    """Makes operations happen once, for code that awaits.

    Args:
        store: a URL (`sqlite:///semel.db`, `memory://`), the path of a SQLite file, or a store.
        cache: a cache of completed records in front of a SQL store: the URL of a Redis, or a `Cache`.
        policy: the policy of operations that name none.
        observer: told what happens; by default it goes to `logging`.
        clock: what waiting is measured by; tests put a virtual one here.
        limits: how much a store in trouble is asked, how many may wait for it, and how many for others.
        fingerprint_secret: keys the digests of what was asked; of several the first makes them, and all compare.
        seal: seals what is stored: a `semel.security.Keyring`.
        settings: settings of the store, as its reference page names them.
    """

    _kind = _ASYNC
