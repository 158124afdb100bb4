"""Tokens of operators: named, with roles and scopes, and of use until they expire or are revoked.

- The secret is shown once, when the token is made; the store has its hash. A secret has 256 random bits, so that one
  plain hash is enough.
- A secret is compared in constant time, also where there is no such token.
- Whatever is done with tokens is in the audit chain, under the scope of nobody in particular.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
from base64 import urlsafe_b64encode
from collections.abc import AsyncIterator, Callable, Collection
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

import msgspec

from semel.api import AsyncSemel
from semel.core.flow import Flow, ask
from semel.core.operators.tokens import AddToken, FindToken, ListTokens, RevokeToken, StoredToken, TouchToken
from semel.core.record import instant
from semel.engine.engine import engine_of
from semel.errors import UsageError
from semel.server.access import User
from semel.server.audit.chain import Audit, refuse_without_audit
from semel.validation import to_timedelta

LONGEST: Final = timedelta(days=366)
USED_EVERY_US: Final = 60_000_000
_ID: Final = 8
_SECRET: Final = 32
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}\Z")
_FORM: Final = re.compile(r"semel_([0-9a-f]{16})_([A-Za-z0-9_-]{43})\Z")
_MOST_SCOPES: Final = 100
_PAGE: Final = 100
NOBODY: Final = bytes(32)


@dataclass(frozen=True, slots=True)
class Token:
    """A token as operators see it.

    Attributes:
        name: what it is called.
        roles: its roles.
        scopes: what it reaches; None: all.
        created: when it was made.
        created_by: by whom.
        expires: from when on it is of no use.
        last_used: when it was used last, to the minute; None: never.
        revoked: when it was revoked; None: it was not.
        is_valid: whether it is of use now.
    """

    name: str
    roles: frozenset[str]
    scopes: frozenset[str] | None
    created: datetime
    created_by: str
    expires: datetime
    last_used: datetime | None
    revoked: datetime | None
    is_valid: bool


@dataclass(frozen=True, slots=True)
class NewToken:
    """A token that was just made. `secret` is what its owner signs in with; it is not kept anywhere else."""

    token: Token
    secret: str = field(repr=False)


class Tokens:
    """The tokens in a store.

    Raises:
        UsageError: the store cannot keep them.
    """

    def __init__(self, semel: AsyncSemel) -> None:
        self._engine = engine_of(semel)
        refuse_without_audit(self._engine.store, "Tokens()")
        self._audit = Audit(semel)

    async def create(
        self,
        name: str,
        *,
        roles: Collection[str],
        scopes: Collection[str] | None,
        expires_in: timedelta,
        by: str,
    ) -> NewToken:
        """Make a token.

        Args:
            name: what it is called, in lists and in the audit chain; never used again.
            roles: its roles.
            scopes: what it reaches; None: all.
            expires_in: how long it is of use, a year at most.
            by: who makes it.

        Raises:
            UsageError: there is a token of that name, or a role, a name or a duration cannot be used.
        """
        added, secret = new_token(name, roles=roles, scopes=scopes, expires_in=expires_in, by=by, draw=os.urandom)
        detail = {"roles": added.roles, "scopes": "all" if scopes is None else ", ".join(sorted(scopes))[:1000]}
        async with self._audit.record(scope="", actor=by, action="token.create", target=name, reason="", detail=detail):
            return NewToken(await self._engine.perform_on(None, add_token(added)), secret)

    async def find(self, secret: str) -> User | None:
        """Whoever signs in with this secret; None: it is unknown, expired or revoked."""
        return await self._engine.perform_on(None, find_user(secret))

    async def list(self) -> AsyncIterator[Token]:
        """All tokens, by name, those that are of no use any more too."""
        after = ""
        while True:
            found = await self._engine.perform_on(None, ask(ListTokens(after, _PAGE)))
            for token in found.tokens:
                yield show_token(token, found.now_us)
            if len(found.tokens) < _PAGE:
                return
            after = found.tokens[-1].name

    async def revoke(self, name: str, *, by: str) -> bool:
        """Have a token be of no use from now on; False: there is none of that name, or it was revoked before."""
        async with self._audit.record(scope="", actor=by, action="token.revoke", target=name, reason="") as action:
            found = await self._engine.perform_on(None, ask(RevokeToken(name, by)))
            if found.token is None:
                action.outcome = "nothing to revoke"
            return found.token is not None


def new_token(
    name: str,
    *,
    roles: Collection[str],
    scopes: Collection[str] | None,
    expires_in: timedelta,
    by: str,
    draw: Callable[[int], bytes],
) -> tuple[AddToken, str]:
    """A token that is to be kept, and what its owner signs in with.

    Raises:
        UsageError: a name, a role, a scope or the duration cannot be used.
    """
    if not isinstance(name, str) or _NAME.match(name) is None:
        raise UsageError(
            "The name of a token has 1 to 64 letters, digits and . _ @ -, beginning with a letter or a digit; "
            "nothing was made."
        )
    if not roles:
        raise UsageError("A token without a role may do nothing; nothing was made. Give it a role.")
    for what, given in (("roles", roles), ("scopes", scopes or ())):
        if isinstance(given, str) or not all(isinstance(one, str) for one in given):
            raise UsageError(f"{what}= must be a list of texts, not {given!r:.100}; nothing was made.")
    User(name, roles, scopes)
    if scopes is not None and (len(scopes) > _MOST_SCOPES or any(len(scope) > 255 for scope in scopes)):  # noqa: PLR2004 - as of a key
        raise UsageError(f"A token has at most {_MOST_SCOPES} scopes of at most 255 characters; nothing was made.")
    lasts = to_timedelta("expires_in", expires_in, longest=LONGEST, outcome="nothing was made")
    id_, random = draw(_ID), draw(_SECRET)
    shown = urlsafe_b64encode(random).decode().rstrip("=")
    added = AddToken(
        id=id_,
        name=name,
        secret_hash=hash_secret(shown),
        roles=",".join(sorted(map(str, roles))),
        scopes=None if scopes is None else msgspec.json.encode(sorted(scopes)).decode(),
        by=by,
        lasts_us=lasts // timedelta(microseconds=1),
    )
    return added, f"semel_{id_.hex()}_{shown}"


def hash_secret(shown: str) -> bytes:
    """The hash of the secret part of a token."""
    return hashlib.sha256(b"semel token 1\0" + shown.encode()).digest()


def add_token(added: AddToken) -> Flow[Token]:
    """Keep a token.

    Raises:
        UsageError: there is one of that name.
    """
    found = yield from ask(added)
    if found.token is None or found.token.id != added.id:
        raise UsageError(f"There is a token {added.name!r} already, or there was one; nothing was made.")
    return show_token(found.token, found.now_us)


def find_user(secret: str) -> Flow[User | None]:
    """Whoever signs in with this secret."""
    form = _FORM.match(secret) if isinstance(secret, str) else None
    id_, shown = (bytes.fromhex(form[1]), form[2]) if form is not None else (bytes(_ID), "")
    found = yield from ask(FindToken(id_))
    token = found.token
    # Compared in any case: how long it takes says nothing of whether there is such a token.
    is_equal = hmac.compare_digest(hash_secret(shown), NOBODY if token is None else token.secret_hash)
    if form is None or token is None or not is_equal or not is_valid(token, found.now_us):
        return None
    if token.used_us is None or token.used_us <= found.now_us - USED_EVERY_US:
        yield from ask(TouchToken(id_, USED_EVERY_US))
    return User(token.name, token.roles.split(","), scopes_of(token))


def is_valid(token: StoredToken, now_us: int) -> bool:
    """Whether a token is of use."""
    return token.revoked_us is None and now_us < token.expires_us


def scopes_of(token: StoredToken) -> frozenset[str] | None:
    """What a token reaches."""
    return None if token.scopes is None else frozenset(msgspec.json.decode(token.scopes, type=list[str]))


def show_token(token: StoredToken, now_us: int) -> Token:
    """A stored token as operators see it."""
    return Token(
        name=token.name,
        roles=frozenset(token.roles.split(",")),
        scopes=scopes_of(token),
        created=instant(token.created_us),
        created_by=token.created_by,
        expires=instant(token.expires_us),
        last_used=None if token.used_us is None else instant(token.used_us),
        revoked=None if token.revoked_us is None else instant(token.revoked_us),
        is_valid=is_valid(token, now_us),
    )
