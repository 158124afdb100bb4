"""`semel serve` as one process: the application with everything in it, and the first token."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.routing import BaseRoute, Mount

from semel.api import AsyncSemel, Semel
from semel.core.store import Capability
from semel.engine.engine import engine_of
from semel.errors import UsageError
from semel.events import Consumer, Relay
from semel.server.access import Role, User
from semel.server.api.protection import TooManyMisses
from semel.server.api.routes import Api
from semel.server.api.signin import ByToken
from semel.server.app import find_attention, make_app
from semel.server.attention import AttentionFinder
from semel.server.engines import as_async
from semel.server.maintenance import Due, Maintenance
from semel.server.settings import ServerSettings, find_risks
from semel.server.tokens import Tokens
from semel.telemetry import AttentionCollector

FIRST_TOKEN: Final = "admin"  # noqa: S105 - its name
FIRST_LASTS: Final = timedelta(days=90)


def make_server_app(
    semel: Semel | AsyncSemel,
    settings: ServerSettings,
    *,
    due: Due,
    limit: int | None = None,
    consumers: Iterable[Consumer[Any]] = (),
    relay: Relay | None = None,
    registry: CollectorRegistry | None = None,
    show_first_token: Callable[[str], None] | None = None,
) -> Starlette:
    """The application of `semel serve`.

    Args:
        semel: the engine whose records are looked after.
        settings: the table `[server]`.
        due: when the next sweep is due.
        limit: how many records one sweep deletes, and marks, at most.
        consumers: consumers whose dead letters can be redriven here.
        relay: what publishes the outbox, by choice.
        registry: where the engine's own metrics are; those of what needs a person are added.
        show_first_token: given the secret of an admin's token, which is made where there is no token yet, by
            `app.state.prepare()`. Await that before the application is served, because an error of the store that
            is raised while a server begins is told by that server, as a traceback.

    Raises:
        UsageError: users have to sign in, and the store keeps no tokens.
    """
    known = as_async(semel)
    tokens = _tokens_of(known) if settings.authentication else None

    def background(api: Api) -> AbstractAsyncContextManager[None]:
        return _running(
            api,
            Maintenance(
                semel, api.runner, api.actions.audit, due=due, limit=limit, relay=relay, anchor=settings.anchor
            ),
            known,
        )

    app = make_app(
        semel,
        tokens=tokens,
        anybody=tokens is None,
        consumers=consumers,
        metrics=_metrics_writer(known, registry or CollectorRegistry()),
        open_metrics=settings.open_metrics,
        hosts=settings.answered_names,
        pages=partial(_console_pages, settings) if settings.console else None,
        background=background,
    )
    app.state.api.actions.anchor = settings.anchor
    app.state.prepare = partial(_prepare, tokens, known, show_first_token)
    return app


def _tokens_of(semel: AsyncSemel) -> Tokens:
    store = engine_of(semel).store
    if Capability.AUDIT not in store.capabilities:
        raise UsageError(
            f"{store.name} keeps no tokens, so nobody could sign in; nothing was started. Use a SQL database, mount "
            f"the console into an application that knows its users, or write authentication = false into [server]."
        )
    return Tokens(semel)


async def _prepare(tokens: Tokens | None, semel: AsyncSemel, show_first_token: Callable[[str], None] | None) -> None:
    if tokens is None or show_first_token is None:
        return
    try:
        secret = await make_first_token(tokens)
    except BaseException:
        await semel.close()
        raise
    if secret is not None:
        show_first_token(secret)


@asynccontextmanager
async def _running(api: Api, maintenance: Maintenance, semel: AsyncSemel) -> AsyncIterator[None]:
    try:
        async with maintenance.running():
            yield
    finally:
        await api.runner.close()
        await semel.close()


async def make_first_token(tokens: Tokens) -> str | None:
    """The secret of an admin's token where there was none at all; None: there was one."""
    async for _ in tokens.list():
        return None
    try:
        made = await tokens.create(
            FIRST_TOKEN, roles=[Role.ADMIN], scopes=None, expires_in=FIRST_LASTS, by="semel serve"
        )
    except UsageError:  # another server was faster
        return None
    return made.secret


def _metrics_writer(semel: AsyncSemel, registry: CollectorRegistry) -> Callable[[], Awaitable[tuple[bytes, str]]]:
    finder = AttentionFinder(semel)
    collector = AttentionCollector(lambda: find_attention(finder, lambda: datetime.now(UTC)))
    registry.register(collector)

    async def write() -> tuple[bytes, str]:
        await collector.refresh()
        return generate_latest(registry), CONTENT_TYPE_LATEST

    return write


def _console_pages(settings: ServerSettings, api: Api) -> Sequence[BaseRoute]:
    from semel.server.console.app import make_console  # it loads the templates

    async def find_user(request: Request) -> User | None:
        try:
            return await api.sign_in.find(request)
        except TooManyMisses:
            return None

    sign_in = "/sign-in" if isinstance(api.sign_in, ByToken) else ""
    console = make_console(
        api.actions,
        api.bulk,
        api.runner,
        user=find_user,
        links=settings.links,
        sign_in=sign_in,
        findings=find_risks(settings),
    )
    return [Mount("/", app=console, name="console")]
