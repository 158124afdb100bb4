"""The settings file: one TOML file and the environment, read into values that are checked.

- The environment wins over the file: `SEMEL_STORE`, `SEMEL_POLICY__KEEP_FOR`, two underscores between table and name.
- A name that does not exist is refused with the nearest one that does, and a value that is not usable with its place in
  the file. Nothing is opened before everything was read.
- Durations are written as in ISO 8601 (`P1D`, `PT15M`, `P1DT12H`) or as a number of seconds. Months and years have no
  fixed length and are refused.
- What cannot be written as text (error classes, hooks) belongs into code, and the message says so.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import time, timedelta
from pathlib import Path
from typing import Any, Final

from semel.core.policy import Doubt, Policy, StoreDown, WhenRunning
from semel.errors import UsageError
from semel.settings import explain_unknown

_DURATION: Final = re.compile(
    r"P(?!$)(?:(\d+(?:\.\d+)?)W)?(?:(\d+(?:\.\d+)?)D)?"
    r"(?:T(?=\d)(?:(\d+(?:\.\d+)?)H)?(?:(\d+(?:\.\d+)?)M)?(?:(\d+(?:\.\d+)?)S)?)?"
)
_TIME: Final = re.compile(r"([01]\d|2[0-3]):([0-5]\d)")
_YES: Final = {"true": True, "1": True, "yes": True, "on": True, "false": False, "0": False, "no": False, "off": False}
_PREFIX: Final = "SEMEL_"
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
}
_TABLES: Final[dict[str, dict[str, Reader]]] = {
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
    "relay": {},
    "server": {},
    "security": {},
    "telemetry": {},
}
_TOP: Final[dict[str, Reader]] = {"store": _read_text, "cache": _read_text, "enabled": _read_flag}
_HINTS: Final = dict.fromkeys(("final_errors", "retry_errors", "reconcile"), _IN_CODE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Operations:
    """What a settings file says of operations: changes for each declared one, and whether others are refused."""

    declared: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    common: Mapping[str, Any] = field(default_factory=dict)
    strict: bool = False

    def policy(self, operation: str, own: Policy) -> Policy:
        """The policy of an operation: what the code says, with what the file says over it.

        Raises:
            UsageError: the file is strict, and does not declare this operation.
            PolicyInvalid: both together cannot be kept.
        """
        changes = self.declared.get(operation)
        if changes is None:
            if self.strict:
                message = (
                    f"The operation {operation!r} is not declared; nothing ran. Give it a table "
                    f"[operations.{operation}] in the settings file, or set strict = false there."
                )
                raise UsageError(message)
            return own
        return own.replace(**{**self.common, **changes})


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Everything that a settings file and the environment say. Tables hold values of their final types."""

    store: str = field(repr=False)  # an address may hold a password
    cache: str | None = field(default=None, repr=False)
    enabled: bool = True
    policy: Mapping[str, Any] = field(default_factory=dict)
    operations: Operations = field(default_factory=Operations)
    pool: Mapping[str, Any] = field(default_factory=dict)
    limits: Mapping[str, Any] = field(default_factory=dict)
    cleanup: Mapping[str, Any] = field(default_factory=dict)
    relay: Mapping[str, Any] = field(default_factory=dict)
    server: Mapping[str, Any] = field(default_factory=dict)
    security: Mapping[str, Any] = field(default_factory=dict)
    telemetry: Mapping[str, Any] = field(default_factory=dict)


def read_settings(path: str | os.PathLike[str] | None, environment: Mapping[str, str] | None = None) -> Settings:
    """The settings in the file at `path`, with the environment over them; without a path the environment alone.

    Raises:
        UsageError: the file is missing or no TOML, a name is unknown, a value is not usable, or no store is named.
    """
    source = "the environment" if path is None else os.fspath(path)
    given = {} if path is None else _load(Path(path))
    _override(given, os.environ if environment is None else environment)
    tables = {name: given.pop(name, {}) for name in (*_TABLES, "operations")}
    top = _read_table(given, _TOP, source, "")
    if "store" not in top:
        message = f'No store is named in {source}; nothing was opened. Write store = "…", or set {_PREFIX}STORE.'
        raise UsageError(message)
    read = {name: _read_table(tables[name], readers, source, name) for name, readers in _TABLES.items()}
    given_tables: dict[str, Any] = {**top, **read}
    return Settings(**given_tables, operations=_read_operations(tables["operations"], source))


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


def _override(given: dict[str, Any], environment: Mapping[str, str]) -> None:
    """Put what the environment says over what the file says; other variables of that prefix are not settings."""
    for variable, value in environment.items():
        if not variable.startswith(_PREFIX):
            continue
        table, *names = variable.removeprefix(_PREFIX).split("__")
        if not names:
            if table.lower() in _TOP:
                given[table.lower()] = value
            continue
        place = given.setdefault(table.lower(), {})
        if table.lower() == "operations" and len(names) > 1:  # operations are spelt as they are
            place = place.setdefault(names.pop(0), {}) if isinstance(place, dict) else place
        if isinstance(place, dict):
            place["__".join(names).lower()] = value


def _read_operations(given: object, source: str) -> Operations:
    if not isinstance(given, dict):
        raise _not_a_table(source, "operations", given)
    tables = dict(given)
    strict = _read_table({"strict": tables.pop("strict", False)}, {"strict": _read_flag}, source, "operations")
    read = {name: _read_table(table, _POLICY, source, f"operations.{name}") for name, table in tables.items()}
    return Operations(declared=read, common=read.pop("*", {}), **strict)


def _read_table(given: object, readers: Mapping[str, Reader], source: str, table: str) -> dict[str, Any]:
    if not isinstance(given, dict):
        raise _not_a_table(source, table, given)
    read: dict[str, Any] = {}
    for name, value in given.items():
        reader = readers.get(name)
        if reader is None:
            known = readers if table else {**readers, **_TABLES, "operations": {}}
            owner = f"[{table}] of {source}" if table else source
            raise UsageError(explain_unknown(owner, name, known, outcome="nothing was opened", hints=_HINTS))
        try:
            read[name] = reader(value)
        except (ValueError, OverflowError) as problem:
            place = f"{table}.{name}" if table else name
            # The store's address may hold a password, so that what was given is not shown for it.
            shown = "" if name in _TOP else f", not {value!r:.80}"
            raise UsageError(f"{place} in {source} must be {problem}{shown}; nothing was opened.") from None
    return read


def _not_a_table(source: str, table: str, given: object) -> UsageError:
    return UsageError(f"{table} in {source} must be a table, not {given!r:.80}; nothing was opened.")
