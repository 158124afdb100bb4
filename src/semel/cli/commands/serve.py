"""`semel serve`: the operators' server in one process."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

import typer
from rich import box
from rich.table import Table
from rich.text import Text

from semel.api import AsyncSemel, Semel, keyring_of
from semel.cli.exit_codes import OTHER, Refused, usage_error
from semel.cli.printing import as_text, console
from semel.cli.schedule import Schedule
from semel.cli.store_option import (
    Url,
    app_option,
    check_alone,
    chosen_settings,
    load_engine,
    open_async_engine,
    store_at,
)
from semel.core.flow import ask
from semel.core.observer import Logging
from semel.core.operations import Query, Scan
from semel.core.record import StoredRecord
from semel.core.store import Capability, Store
from semel.engine.engine import EngineBase, engine_of
from semel.errors import SchemaOutdated, SemelError, UsageError
from semel.extras import requires
from semel.server.settings import ServerSettings, find_risks
from semel.settings import Settings
from semel.stores.admin import DEFAULT_HORIZON, Finding, admin_of
from semel.stores.sealing.answers import find_unreadable
from semel.stores.wrapper import innermost_store

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from semel.events import Relay

T = TypeVar("T")
_EVERY: Final = timedelta(minutes=15)
_LOOKED_AT: Final = 50
_KEYS: Final = "seal keys"
_STYLES: Final = {"ok": "green", "note": "yellow", "fix": "bold red"}


def serve(
    url: Url = None,
    *,
    app: Annotated[str | None, app_option("so that its reconcile hooks are asked")] = None,
    consumer: Annotated[
        list[str] | None,
        typer.Option(
            metavar="MODULE:CONSUMER",
            help="A Consumer whose dead letters can be redriven here; may be given several times.",
            show_default=False,
        ),
    ] = None,
    host: Annotated[str | None, typer.Option(help="Listen here. Default: 127.0.0.1.", show_default=False)] = None,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="On this port. Default: 8787.", show_default=False)
    ] = None,
    check: Annotated[bool, typer.Option("--check", help="Look at settings and database, and end.")] = False,
) -> None:
    r"""Run the operators' server: admin API, console, metrics, sweeps, and the relay by choice.

    \[server], \[cleanup] and \[relay] of the settings file say the rest. The first start makes a token of an admin and
    prints it once. Without --app no reconcile hook is known here, so that what needs one stays in doubt.
    """
    with requires("semel serve", "starlette"), requires("semel serve", "uvicorn"):
        import uvicorn

        from semel.server.process import make_server_app
    check_alone(None if url is None or url.endswith(".toml") else url, app)
    settings = chosen_settings(url)
    table = dict({} if settings is None else settings.server)
    table |= {name: value for name, value in (("host", host), ("port", port)) if value is not None}
    if check:
        refusals = _find_refusals(url, app, settings, table, consumer or [])
        _check(url, app, settings, find_risks(ServerSettings(**table)), refusals)
        return
    made = ServerSettings.of(table)
    made = replace(made, consumers=(*made.consumers, *(consumer or ())))
    semel, registry = _engine(url, app)
    cleanup = {} if settings is None else settings.cleanup
    relaying = make_relay(settings, semel)
    application = make_server_app(
        semel,
        made,
        due=Schedule(cleanup.get("check_every", _EVERY), cleanup.get("at")).due,
        limit=cleanup.get("limit"),
        consumers=[_load_consumer(path) for path in made.consumers],
        relay=relaying,
        registry=registry,
        show_first_token=_show_first_token,
    )
    _explain_hooks(semel, app)
    config = uvicorn.Config(
        application,
        host=made.host,
        port=made.port,
        log_config=None,
        access_log=False,
        server_header=False,
        lifespan="on",
        proxy_headers=bool(made.proxies),
        forwarded_allow_ips=list(made.proxies),
        timeout_graceful_shutdown=10,
        limit_concurrency=200,
    )

    class Server(uvicorn.Server):
        """uvicorn, saying where it answers once it does, and why it does not in one line."""

        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await _check_address(made.host, made.port)
            await application.state.prepare()
            await super().startup(sockets)
            if self.started:
                _tell_address(*self.servers[0].sockets[0].getsockname()[:2])

    Server(config).run()


async def _check_address(host: str, port: int) -> None:
    """Refuse an address that nobody can listen on, before a token is made.

    Raises:
        Refused: somebody listens there, or the address is none of this machine.
    """
    try:
        tried = await asyncio.get_running_loop().create_server(asyncio.Protocol, host, port, start_serving=False)
    except OSError as error:
        message = (
            f"Nothing can listen on {host}, port {port} ({error.strerror}); nothing was started. End what listens "
            f"there, or choose another address: --host, --port, or host and port in [server]."
        )
        raise usage_error(message) from None
    tried.close()
    await tried.wait_closed()


def _tell_address(host: str, port: int) -> None:
    where = f"[{host}]" if ":" in host else host
    sys.stdout.write(f"Console and admin API: http://{where}:{port}. Ctrl-C ends it.\n")
    sys.stdout.flush()


def _engine(url: str | None, app: str | None) -> tuple[Semel | AsyncSemel, CollectorRegistry]:
    """The engine, and where its own metrics are."""
    from semel.telemetry import Observers
    from semel.telemetry.prometheus import PrometheusObserver

    if app is not None:
        loaded: Any = load_engine(app)
        return loaded, count_calls(engine_of(loaded))
    counting = PrometheusObserver()
    return open_async_engine(url, observer=Observers(Logging(), counting)), counting.registry


def count_calls(engine: EngineBase) -> CollectorRegistry:
    """The registry that an application's engine is counted in: its own, or one that is made for it.

    Else an engine without metrics would sweep here, and the alert for sweeps that are overdue would go off.
    """
    from semel.telemetry import Observers
    from semel.telemetry.prometheus import PrometheusObserver

    told = engine.observer.all if isinstance(engine.observer, Observers) else (engine.observer,)
    counting = next((one for one in told if isinstance(one, PrometheusObserver)), None)
    if counting is None:
        counting = PrometheusObserver()
        engine.observe_with(Observers(engine.observer, counting))
    return counting.registry


def _load_consumer(path: str) -> Any:
    from semel.cli.commands.events.letters import load_consumer

    return load_consumer(path)


def make_relay(settings: Settings | None, semel: Semel | AsyncSemel) -> Relay | None:
    """The relay that `[relay]` asks for; None: it asks for none."""
    table = {} if settings is None else settings.relay
    if "publisher" not in table:
        return None
    from semel.cli.commands.events.relays import make_publisher
    from semel.events import Outbox, Relay
    from semel.server.engines import as_async

    publisher = make_publisher(table["publisher"], table.get("target"), table.get("exchange"))
    return Relay(Outbox(as_async(semel), table.get("outbox", "default")), publisher, parts=table.get("parts", 1))


def _show_first_token(secret: str) -> None:
    sys.stdout.write(f"The first token, of an admin, for 90 days. It is shown only now:\n{secret}\n")
    sys.stdout.flush()


def _explain_hooks(semel: Semel | AsyncSemel, app: str | None) -> None:
    known = engine_of(semel).known
    hooks = sorted(name for name, one in known.items() if one.policy.reconcile is not None)
    if app is None:
        console().print(Text("No --app: no reconcile hook is known here; what needs one stays in doubt.", "yellow"))
    else:
        console().print(as_text(f"Reconcile hooks of {app}: {', '.join(hooks) or 'none'}"))


def examine_keys(settings: Settings | None, store: Store | None) -> list[Finding]:
    """Whether the keys of `[security]` can be read and open what `store` keeps, before somebody needs them.

    A store that would read all records for that is not asked, and neither is one whose keys an application has.
    """
    try:
        sealer = None if settings is None else keyring_of(settings)
    except UsageError as error:
        return [Finding(_KEYS, error.message, "fix", "Put the keys where [security] says.")]
    if sealer is None:
        return []
    if store is not None and Capability.COUNT in store.capabilities:
        unreadable = next(filter(None, (find_unreadable(sealer, record) for record in _newest_of(store))), None)
        if unreadable is not None:
            found = f"they do not open what was stored lately: {unreadable.message}"
            return [Finding(_KEYS, found, "fix", "Put the keys that the workers have where [security] says.")]
    return [Finding(_KEYS, f"{sealer.active} seals", "ok", "")]


def _newest_of(store: Store) -> Sequence[StoredRecord]:
    """The records that were made last, as they are stored; none where the schema is not the one of this release."""
    with Semel(store) as semel:
        try:
            return engine_of(semel).perform_on(None, ask(Scan(Query(newest_first=True), None, _LOOKED_AT))).records
        except SchemaOutdated:  # which is a finding of its own
            return ()


def _find_refusals(
    url: str | None, app: str | None, settings: Settings | None, table: dict[str, Any], consumers: list[str]
) -> list[Finding]:
    """Why the server would not start: everything that it is made of is made, and nothing of it is started."""
    from semel.server.process import make_server_app

    found: list[Finding] = []

    def attempt(topic: str, make: Callable[[], T]) -> T | None:
        try:
            return make()
        except (Refused, SemelError) as error:
            found.append(Finding(topic, error.message, "fix", f"semel serve would not start: see {topic}."))
            return None

    made = attempt("[server] host", lambda: ServerSettings.of(table)) or ServerSettings(**table)
    engine = attempt("the store", lambda: _engine(url, app))
    for path in (*made.consumers, *consumers):
        attempt(f"consumer {path}", partial(_load_consumer, path))
    if engine is not None:
        semel, registry = engine
        attempt("[relay]", lambda: make_relay(settings, semel))
        attempt("[server]", lambda: make_server_app(semel, made, due=Schedule().due, registry=registry))
    return found


def _check(
    url: str | None, app: str | None, settings: Settings | None, risks: list[Finding], refusals: list[Finding]
) -> None:
    """Print what was found about store and settings; exit code 1 where something has to be fixed."""
    store = innermost_store(engine_of(load_engine(app)).store) if app is not None else store_at(url)
    findings = [*examine_keys(settings, store if app is None else None), *risks]
    told = {finding.found for finding in findings}
    findings = [*findings, *(one for one in refusals if one.found not in told)]
    if Capability.EXAMINE in store.capabilities:
        findings = [*admin_of(store, Capability.EXAMINE).examine(DEFAULT_HORIZON), *findings]
    if Capability.AUDIT not in store.capabilities:
        findings.append(Finding("audit chain", "none: everything is read-only here", "note", "Use a SQL database."))
    grid = Table(box=box.SIMPLE_HEAD, header_style="bold", padding=(0, 1, 0, 0))
    for column in ("", "what", "found", "what to do"):
        grid.add_column(column)
    for one in findings:
        grid.add_row(Text(one.verdict, _STYLES[one.verdict]), one.topic, as_text(one.found), one.advice)
    console().print(grid)
    if any(one.verdict == "fix" for one in findings):
        raise typer.Exit(OTHER)
