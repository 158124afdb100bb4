"""The settings file: one TOML file and the environment, read into values that are checked.

- The environment wins over the file: `SEMEL_STORE`, `SEMEL_POLICY__KEEP_FOR`, two underscores between table and name.
- A name that does not exist is refused with the nearest one that does, and a value that is not usable with its place in
  the file or its variable. Nothing is opened before everything was read.
- Durations are written as in ISO 8601 (`P1D`, `PT15M`, `P1DT12H`) or as a number of seconds. Months and years have no
  fixed length and are refused.
- What cannot be written as text (error classes, hooks) belongs into code, and the message says so.
- Addresses may hold passwords, so neither an error nor a printed value shows one.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import time, timedelta
from pathlib import Path
from typing import Any, Final

from semel.core.circuit import Limits
from semel.core.policy import DeclaredOperations, Doubt, Policy, StoreDown, WhenRunning
from semel.errors import UsageError
from semel.validation import explain_unknown

FILE: Final = "semel.toml"
"""The settings file that is looked for in the working directory where none is named."""
FILE_VARIABLE: Final = "SEMEL_SETTINGS"
"""The environment variable that names the settings file."""

_DURATION: Final = re.compile(
    r"P(?!$)(?:(\d+(?:\.\d+)?)W)?(?:(\d+(?:\.\d+)?)D)?"
    r"(?:T(?=\d)(?:(\d+(?:\.\d+)?)H)?(?:(\d+(?:\.\d+)?)M)?(?:(\d+(?:\.\d+)?)S)?)?"
)
_TIME: Final = re.compile(r"([01]\d|2[0-3]):([0-5]\d)")
_YES: Final = {"true": True, "1": True, "yes": True, "on": True, "false": False, "0": False, "no": False, "off": False}
_PREFIX: Final = "SEMEL_"
_ENVIRONMENT: Final = "the environment"
_IN_CODE: Final = "It is Python code: give it to @once(…), to Policy(…) or to the route."

Reader = Callable[[object], Any]
"""Gives the value that is used; raises ValueError with what would be usable."""


def read_duration(given: object) -> timedelta:
    """A duration of ISO 8601, or a number of seconds."""
    if isinstance(given, str):
        found = _DURATION.fullmatch(given)
        if found is not None:
            weeks, days, hours, minutes, seconds = (float(part or 0) for part in found.groups())
            return timedelta(weeks=weeks, days=days, hours=hours, minutes=minutes, seconds=seconds)
        given = _number(given)
    if isinstance(given, int | float) and not isinstance(given, bool):
        return timedelta(seconds=given)
    raise ValueError('a duration such as "PT15M" or "P90D", or a number of seconds; months and years have no length')


def _number(text: str) -> object:
    try:
        return float(text)
    except ValueError:
        return text


def _read_count(given: object) -> int:
    if isinstance(given, str) and given.isdecimal():
        given = int(given)
    if isinstance(given, int) and not isinstance(given, bool) and given >= 0:
        return given
    raise ValueError("a whole number")


def _read_flag(given: object) -> bool:
    if isinstance(given, str):
        given = _YES.get(given.lower(), given)
    if isinstance(given, bool):
        return given
    raise ValueError("true or false")


def _read_text(given: object) -> str:
    if isinstance(given, str) and given:
        return given
    raise ValueError("a text that is not empty")


def _read_texts(given: object) -> tuple[str, ...]:
    if isinstance(given, str):
        given = [part.strip() for part in given.split(",")]
    if isinstance(given, list) and given and all(isinstance(one, str) and one for one in given):
        return tuple(given)
    raise ValueError("a list of texts, or texts with commas between them")


def _read_links(given: object) -> dict[str, str]:
    """Addresses by what they are called: a table, or `name=address` with commas between."""
    if isinstance(given, str):
        pairs = [part.strip().partition("=") for part in given.split(",")]
        given = {name: address for name, _, address in pairs}
    if (
        isinstance(given, dict)
        and given
        and all(isinstance(one, str) and one for pair in given.items() for one in pair)
    ):
        return given
    raise ValueError('a table such as { Trace = "https://…/{trace_id}" }, or name=address with commas between them')


def _read_time(given: object) -> time:
    if isinstance(given, time):
        return given
    found = _TIME.fullmatch(given) if isinstance(given, str) else None
    if found is None:
        raise ValueError('a time of day such as "02:00"')
    return time(int(found[1]), int(found[2]))


def _one_of(words: Any) -> Reader:
    known: tuple[str, ...] = words.__args__

    def read(given: object) -> str:
        if isinstance(given, str) and given in known:
            return given
        raise ValueError(f"one of {', '.join(known)}")

    return read


_POLICY: Final[dict[str, Reader]] = {
    "keep_for": read_duration,
    "lease_for": read_duration,
    "max_runtime": read_duration,
    "when_running": _one_of(WhenRunning),
    "wait_for": read_duration,
    "max_attempts": _read_count,
    "in_doubt": _one_of(Doubt),
    "reconcile_after": read_duration,
    "store_down": _one_of(StoreDown),
    "max_result": _read_count,
    "redact": _read_texts,
}
TABLES: Final[Mapping[str, Mapping[str, Reader]]] = {
    "policy": _POLICY,
    "pool": {
        "size": _read_count,
        "min_idle": _read_count,
        "idle_for": read_duration,
        "lifetime": read_duration,
        "connect_timeout": read_duration,
        "statement_timeout": read_duration,
        "log_statements": _read_flag,
    },
    "limits": {
        "max_handlers": _read_count,
        "max_waiting": _read_count,
        "waiters_per_key": _read_count,
        "open_after": _read_count,
        "slow_call": read_duration,
        "backoff": read_duration,
        "max_backoff": read_duration,
        "max_queue": _read_count,
        "retry_budget": _read_count,
    },
    "cleanup": {"at": _read_time, "check_every": read_duration, "limit": _read_count},
    "relay": {
        "publisher": _read_text,
        "outbox": _read_text,
        "parts": _read_count,
        "exchange": _read_text,
        "target": _read_text,
    },
    "server": {
        "host": _read_text,
        "port": _read_count,
        "public": _read_flag,
        "authentication": _read_flag,
        "names": _read_texts,
        "proxies": _read_texts,
        "open_metrics": _read_flag,
        "anchor": _read_text,
        "console": _read_flag,
        "consumers": _read_texts,
        "links": _read_links,
    },
    "security": {"active_key": _read_text, "key_file": _read_text, "accept_plain": _read_flag},
    "telemetry": {
        "prometheus": _read_flag,
        "max_operations": _read_count,
        "logs": _read_flag,
        "opentelemetry": _read_flag,
        "keep_traces": _read_flag,
    },
}
"""The tables of the file with the names in them, and how each value is read; `[operations]` stands beside them."""
TOP: Final[Mapping[str, Reader]] = {"store": _read_text, "cache": _read_text, "enabled": _read_flag}
"""The names that stand in no table."""
_SECRET: Final = frozenset({"store", "cache", "relay.publisher"})
_HINTS: Final = {
    **{name: f"It belongs to the table [{table}]." for table, names in TABLES.items() for name in names},
    **{name: f"{name} stands before all tables." for name in TOP},
    **dict.fromkeys(("final_errors", "retry_errors", "reconcile"), _IN_CODE),
    "waiters": "Write max_waiting.",
    "pool_size": "Write size in the table [pool].",
    "url": "Write store.",
    **dict.fromkeys(
        ("keys", "key"),
        'Keys do not stand in the settings file: write key_file = "…", or set the variable SEMEL_SEAL_KEYS.',
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Everything that a settings file and the environment say. Tables hold values of their final types.

    `origins` says for each name that was set, such as `policy.keep_for`, which file or variable set it.
    """

    store: str = field(repr=False)  # an address may hold a password
    cache: str | None = field(default=None, repr=False)
    enabled: bool = True
    policy: Mapping[str, Any] = field(default_factory=dict)
    operations: DeclaredOperations = field(default_factory=DeclaredOperations)
    pool: Mapping[str, Any] = field(default_factory=dict)
    limits: Mapping[str, Any] = field(default_factory=dict)
    cleanup: Mapping[str, Any] = field(default_factory=dict)
    relay: Mapping[str, Any] = field(default_factory=dict)
    server: Mapping[str, Any] = field(default_factory=dict)
    security: Mapping[str, Any] = field(default_factory=dict)
    telemetry: Mapping[str, Any] = field(default_factory=dict)
    origins: Mapping[str, str] = field(default_factory=dict, compare=False)

    def default_policy(self) -> Policy:
        """The policy of operations whose code sets nothing.

        Raises:
            PolicyInvalid: it cannot be kept.
        """
        return Policy(**self.policy)

    def to_limits(self) -> Limits:
        """The table `[limits]`.

        Raises:
            UsageError: one of them is out of bounds.
        """
        names = {"max_waiting": "waiters"}
        return Limits(**{names.get(name, name): value for name, value in self.limits.items()})


def find_file(environment: Mapping[str, str] | None = None) -> Path | None:
    """The settings file that nobody named: the one in `SEMEL_SETTINGS`, else `semel.toml` here; None: there is none."""
    named = (os.environ if environment is None else environment).get(FILE_VARIABLE)
    if named:
        return Path(named)
    here = Path(FILE)
    return here if here.is_file() else None


def read_settings(path: str | os.PathLike[str] | None, environment: Mapping[str, str] | None = None) -> Settings:
    """The settings in the file at `path`, with the environment over them; without a path the environment alone.

    Raises:
        UsageError: the file is missing or no TOML, a name is unknown, a value is not usable, or no store is named.
    """
    text = _Text(_ENVIRONMENT if path is None else os.fspath(path), {} if path is None else _load(Path(path)))
    text.put_over(os.environ if environment is None else environment)
    tables = {name: text.given.pop(name, {}) for name in (*TABLES, "operations")}
    top = text.read_table(text.given, TOP, "")
    if "store" not in top:
        message = f'No store is named in {text.source}; nothing was opened. Write store = "…", or set {_PREFIX}STORE.'
        raise UsageError(message)
    read: dict[str, Any] = {name: text.read_table(tables[name], readers, name) for name, readers in TABLES.items()}
    operations = text.read_operations(tables["operations"])
    return Settings(**top, **read, operations=operations, origins=text.origins)


def _load(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            return tomllib.load(file)
    except OSError as problem:
        message = f"The settings file {path} cannot be read: {problem.strerror or problem}; nothing was opened."
        raise UsageError(message) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as problem:
        message = f"The settings file {path} is no TOML: {problem}; nothing was opened."
        raise UsageError(message) from None


class _Text:
    """What a file and the environment say, before it is read; notes where each value came from."""

    def __init__(self, source: str, given: dict[str, Any]) -> None:
        self.source = source
        self.given = given
        self.origins: dict[str, str] = {}
        self._variables: dict[str, str] = {}

    def put_over(self, environment: Mapping[str, str]) -> None:
        """Put what the environment says over what the file says.

        A variable that is empty is taken for one that is not set; others of that prefix are no settings.
        """
        for variable, value in environment.items():
            if not value or not variable.startswith(_PREFIX):
                continue
            table, *names = variable.removeprefix(_PREFIX).split("__")
            table = table.lower()
            if not names:
                if table in TOP:
                    self.given[table] = value
                    self._variables[table] = variable
                continue
            operation = None
            if table == "operations" and len(names) > 1:  # operations are spelt as they are
                operation = "__".join(names[:-1])
                names = names[-1:]
            name = "__".join(names).lower()
            place = self.given.setdefault(table, {})
            if operation is not None and isinstance(place, dict):
                place = place.setdefault(operation, {})
            if isinstance(place, dict):
                place[name] = value
                self._variables[".".join(filter(None, (table, operation, name)))] = variable

    def read_operations(self, given: object) -> DeclaredOperations:
        """The table `[operations]`: `strict`, and one table for each declared operation."""
        if not isinstance(given, dict):
            raise self._not_a_table("operations", given)
        tables = dict(given)
        strict = {"strict": tables.pop("strict")} if "strict" in tables else {}
        read_strict = self.read_table(strict, {"strict": _read_flag}, "operations")
        read = {name: self.read_table(table, _POLICY, f"operations.{name}") for name, table in tables.items()}
        return DeclaredOperations(declared=read, common=read.pop("*", {}), **read_strict)

    def read_table(self, given: object, readers: Mapping[str, Reader], table: str) -> dict[str, Any]:
        """One table, each value as its reader has it."""
        if not isinstance(given, dict):
            raise self._not_a_table(table, given)
        read: dict[str, Any] = {}
        for name, value in given.items():
            place = f"{table}.{name}" if table else name
            origin = self._variables.get(place, self.source)
            reader = readers.get(name)
            if reader is None:
                known = readers if table else {**readers, **TABLES, "operations": {}}
                owner = f"[{table}] of {origin}" if table else origin
                raise UsageError(explain_unknown(owner, name, known, outcome="nothing was opened", hints=_HINTS))
            try:
                read[name] = reader(value)
            except (ValueError, OverflowError) as problem:
                # An address may hold a password, so that what was given is not shown for it.
                shown = "" if place in _SECRET else f", not {value!r:.80}"
                raise UsageError(f"{place} in {origin} must be {problem}{shown}; nothing was opened.") from None
            self.origins[place] = origin
        return read

    def _not_a_table(self, table: str, given: object) -> UsageError:
        origin = next((name for place, name in self._variables.items() if place.startswith(table)), self.source)
        return UsageError(f"{table} in {origin} must be a table, not {given!r:.80}; nothing was opened.")


def show_settings(settings: Settings) -> Iterator[tuple[str, str, str]]:
    """Name, value and origin of everything that was set; of an address no user, password or setting is shown."""
    for place, origin in settings.origins.items():
        yield place, _show(place, _value_at(settings, place)), origin


def _value_at(settings: Settings, place: str) -> Any:
    table, _, name = place.partition(".")
    if table != "operations":
        found = getattr(settings, table)
        return found[name] if name else found
    if name == "strict":
        return settings.operations.strict
    operation, _, field_name = name.rpartition(".")
    operations = settings.operations
    return operations.common[field_name] if operation == "*" else operations.declared[operation][field_name]


def _show(place: str, value: Any) -> str:
    if place in _SECRET:
        return _without_login(str(value))
    if isinstance(value, time):
        return f"{value:%H:%M}"
    if isinstance(value, tuple):
        return ", ".join(value)
    return str(value).lower() if isinstance(value, bool) else str(value)


def _without_login(address: str) -> str:
    """An address as far as its host: what follows, or stands before an @, may be secret."""
    scheme, colon, rest = address.partition("://")
    if not colon:
        return address if "@" not in address else "…"
    rest = rest.partition("?")[0].partition("#")[0]
    login, at, hosts = rest.rpartition("@")
    return f"{scheme}://{'…@' if at and login else ''}{hosts}"
