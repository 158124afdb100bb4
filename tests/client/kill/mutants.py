"""Clients with a fault, to show that a run finds it: each is one statement of the real one, done wrong."""

import secrets
from collections.abc import Callable
from typing import Any, Final

from semel.client.journal import Journal
from semel.client.models import Keep, Outgoing, Reply
from semel.core.flow import Flow
from semel.core.key import Key


def _fresh_key() -> None:
    """Every life sends a key of its own."""
    key = f"fresh-{secrets.token_hex(8)}"
    Key.derive = lambda self, step: key  # type: ignore[method-assign]


def _keeps_too_late() -> None:
    """The request is kept when it has been sent."""

    def kept_and_sent(
        self: Journal, outgoing: Outgoing, key: Key, live: list[Reply], *, named: bool, again: bool
    ) -> Flow[Reply]:
        send = self._send(outgoing, key.derive("send"), plain=False)
        reply = yield from self._sender.sending(send, certain=False)
        yield Keep(outgoing.saved(self._now(), frozenset(), body=True))
        live.append(reply)
        return reply.to_keep()

    Journal._kept_and_sent = kept_and_sent  # type: ignore[method-assign]


def _never_resumes() -> None:
    """What is unfinished stays so."""
    import semel.client.pending

    def nothing(scope: str) -> Flow[list[Any]]:
        return []
        yield

    semel.client.pending.unfinished = nothing


MUTANTS: Final[dict[str, Callable[[], None]]] = {
    "": lambda: None,
    "fresh key": _fresh_key,
    "keeps too late": _keeps_too_late,
    "never resumes": _never_resumes,
}
