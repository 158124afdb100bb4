"""What stands before an application: engine, scope and routes, checked when it is set up. No I/O.

What always holds: whatever is wrong with the settings is said before the first request, and the policy document tells
what the running settings say.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Generic, TypeVar
from urllib.parse import quote

from semel.core.flow import Flow
from semel.core.key import Shared
from semel.engine.colourless import EngineBase
from semel.errors import UsageError
from semel.http.exchange import Answer, Go, Pass, Send, answered, committed, exchange, not_committed, raised
from semel.http.kept import Answered, Kept
from semel.http.policy_document import document
from semel.http.request import Request
from semel.http.response import Response
from semel.http.route import Given, Route, Routes, Scope
from semel.http.stream_limit import StreamLimit

E = TypeVar("E", bound=EngineBase)

DESCRIBED_AT: Final = "/.well-known/idempotency-policy"


class Front(Generic[E]):
    """The settings of one application.

    Args:
        engine: the engine, of the colour of the application.
        scope: from a request to whom its key belongs, taken from authenticated state; `SHARED` opts out.
        routes: which requests carry keys; None: every POST and PATCH that carries one.
        described_at: where the policy document is served; None: nowhere.
        settings: what holds for every route that says nothing else.
    """

    def __init__(
        self,
        engine: E,
        scope: Scope | Shared,
        routes: Iterable[Route] | None,
        described_at: str | None,
        settings: Given,
    ) -> None:
        if not callable(scope) and not isinstance(scope, Shared):
            raise UsageError("scope= is a function of the request, or SHARED; nothing was set up.")
        if described_at is not None and not described_at.startswith("/"):
            raise UsageError("described_at= is a path that begins with a slash, or None; nothing was set up.")
        self.engine = engine
        self.scope = scope
        self.described_at = described_at
        self.routes = Routes.of(routes, settings, engine.policy, described_at)
        self._document = document(self.routes)

    def described(self, method: str, path: str) -> Response | None:
        """The policy document, where this request asks for it; the path below the mount."""
        return self._document if path == self.described_at and method in ("GET", "HEAD") else None

    def find(self, method: str, path: str) -> Route | None:
        """The route of a request, if it is of one that carries keys; the path below the mount."""
        return self.routes.find(method, path) if method in self.routes.methods else None

    def exchange(self, request: Request, route: Route) -> Flow[Pass | Answer | Go]:
        """What becomes of a request."""
        return exchange(request, route, self.scope, self.link(request.mount))

    def answered(self, going: Go, answer: Answered, error: Exception | None = None) -> Flow[Send | Answer]:
        """The application has answered; `error` is what the framework made the answer of, if it was raised."""
        return answered(going, answer, described_at=self.link(going.request.mount), error=error)

    def limit(self, going: Go, kept: Kept) -> StreamLimit:
        """When the answer of a call, which begins to leave now, is stopped before its end."""
        return StreamLimit(going, kept, self.engine.clock.monotonic())

    def raised(self, going: Go, error: Exception) -> Flow[Send | Answer]:
        """The application has raised."""
        return raised(going, error, self.link(going.request.mount))

    def committed(self, going: Go) -> Flow[Answer | None]:
        """The transaction of the request has ended; gives what is sent where it did not commit."""
        return committed(going, self.link(going.request.mount))

    def not_committed(self, going: Go) -> Answer:
        """What is sent where the transaction of a request is known to have ended without a commit."""
        return not_committed(going, self.link(going.request.mount))

    def link(self, mount: str) -> str | None:
        """Where the policy document is; a mount may hold what the client wrote, and goes into a header."""
        return quote(mount) + self.described_at if mount and self.described_at else self.described_at


def demand(engine: object, kind: type[E], framework: str, name: str) -> E:
    """The engine, if it is of the right colour.

    Raises:
        UsageError: it is not.
    """
    if not isinstance(engine, kind):
        raise UsageError(f"{framework} needs semel={name}(…), not {type(engine).__name__}; nothing was set up.")
    return engine
