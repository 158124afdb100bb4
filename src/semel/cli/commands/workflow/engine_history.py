"""What `semel doctor` finds where it compares the records of tasks with how long their engine knows processes.

An engine can reset or restart a process for as long as it knows it, and asks for its tasks again then. So records have
to be kept for longer. That an engine forgets earlier is fine: the record decides.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from semel.cli.exit_codes import usage_error
from semel.cli.store_option import load_object
from semel.stores.admin import Finding
from semel.texts import span
from semel.workflow.delegate import KEEP_FOR, Compensation, Delegate
from semel.workflow.engines.history import EngineHistory
from semel.workflow.starting import STARTS

_TOPIC: Final = "engine history"
_TEMPORAL: Final = "temporal"
_CAMUNDA_7: Final = ("http", "https")
_NAMED: Final = 5
"""Delegates that are named one by one."""


@dataclass(frozen=True, slots=True)
class Kept:
    """How long the records of one delegate are kept, and how that is told."""

    name: str
    keep_for: timedelta


def examine_engine(
    engine: str | None,
    *,
    process: str | None,
    history: timedelta | None,
    delegates: str | None,
    declared: Mapping[str, timedelta] | None = None,
) -> list[Finding]:
    """What was found about an engine, compared with delegates; nothing where no engine is named.

    Args:
        engine: its address.
        process: which of its processes.
        history: how long it knows them, where it cannot be asked.
        delegates: where they are, `package.module:object`.
        declared: how long each operation of the settings file is kept; compared where no delegates are named.

    Raises:
        Refused: the options do not fit together, or there is no such object.
        UsageError: there is no such namespace or process, or a package is missing.
    """
    if history is not None:
        if engine is not None or process is not None:
            raise usage_error("--engine-history is for engines that are not asked; nothing was done. Give one of both.")
        stated = EngineHistory("as you say", history, "its own settings")
        return [judge_history(stated, _read_kept(delegates, declared or {}))]
    if engine is None:
        for option, given in (("--process", process), ("--delegates", delegates)):
            if given is not None:
                message = f"{option} needs an engine; nothing was done. Give --engine, or --engine-history where"
                raise usage_error(f"{message} the engine cannot be asked.")
        return []
    kept = _read_kept(delegates, declared or {})
    try:
        found = _read(engine, process)
    except ConnectionError as error:
        advice = "see that it runs and may be reached from here"
        return [Finding("engine", f"{_show(engine)}: {error}", "fix", advice)]
    return [judge_history(found, kept)]


def judge_history(history: EngineHistory, kept: Sequence[Kept]) -> Finding:
    """Whether records outlive the processes that may ask for them."""
    shortest = min(kept, key=lambda one: one.keep_for)
    records = f"records of {shortest.name} are kept for {span(shortest.keep_for)}"
    if history.longest is None:
        advice = (
            f"set {history.limited_by}, or reset and restart no process whose first task ran longer ago than that: it "
            f"would run again"
        )
        return Finding(_TOPIC, f"{history.place}: ended processes for ever; {records}", "note", advice)
    text = f"{history.place}: ended processes for {span(history.longest)} ({history.limited_by})"
    forgotten = [one for one in kept if one.keep_for <= history.longest]
    if not forgotten:
        left = span(shortest.keep_for - history.longest)
        return Finding(_TOPIC, f"{text}; {records}, so a process may last {left}")
    named = ", ".join(f"{one.name} ({span(one.keep_for)})" for one in forgotten[:_NAMED])
    more = f" and {len(forgotten) - _NAMED} more" if len(forgotten) > _NAMED else ""
    advice = (
        f"raise keep_for above it, by as long as a process lasts, or lower {history.limited_by}: a process that is "
        f"reset or restarted after its records are gone has its effects again"
    )
    return Finding(_TOPIC, f"{text}; forgotten before: {named}{more}", "fix", advice, ("kept",))


def _read_kept(path: str | None, declared: Mapping[str, timedelta]) -> list[Kept]:
    if path is None:
        # A process that is restarted asks for its tasks again, and not for its start.
        kept = [Kept(name, keep_for) for name, keep_for in declared.items() if not name.startswith(STARTS)]
        return kept or [Kept("a delegate that sets nothing", KEEP_FOR)]
    found: Any = load_object(path, "--delegates ")
    given: Iterable[Any] = [found]
    if isinstance(found, Mapping):
        given = found.values()
    elif isinstance(found, list | tuple | set | frozenset):
        given = found
    delegates = list(given)
    if not delegates or not all(isinstance(one, Delegate | Compensation) for one in delegates):
        raise usage_error(f"{path} is neither a delegate nor several of them; nothing was done.")
    return [Kept(repr(one), one.policy.keep_for) for one in delegates]


def _read(engine: str, process: str | None) -> EngineHistory:
    parts = urlsplit(engine)
    if parts.scheme in _CAMUNDA_7 and parts.hostname:
        from semel.workflow.engines import camunda7

        return asyncio.run(camunda7.read_history(engine, process))
    if parts.scheme != _TEMPORAL:
        raise usage_error(
            "The engine is not known; nothing was done. Temporal is temporal://host:7233/namespace, Camunda 7 the "
            "address of its REST interface, http://host:8080/engine-rest. Of others say --engine-history."
        )
    if process is not None:
        raise usage_error("--process is for Camunda 7: Temporal keeps all workflows of a namespace; nothing was done.")
    if "@" in parts.netloc:
        raise usage_error("Temporal takes no user in its address; nothing was done. Set TEMPORAL_API_KEY.")
    from semel.workflow.engines import temporal

    return asyncio.run(temporal.read_history(parts.netloc or None, unquote(parts.path[1:]) or None))


def _show(engine: str) -> str:
    """The address without user, password and options."""
    parts = urlsplit(engine)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
