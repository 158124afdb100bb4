"""What a store may be asked about tokens of operators.

- The secret of a token is nowhere but with its owner: a store has its hash.
- A name is used once; a token that was revoked or has expired stays, so that names in the audit chain keep their
  meaning.
"""

from __future__ import annotations

import msgspec

from semel.core.flow import Asks


class StoredToken(msgspec.Struct, frozen=True, kw_only=True):
    """A token.

    Attributes:
        id: finds it; part of what its owner shows.
        name: what it is called, also in the audit chain.
        secret_hash: the hash of its secret.
        roles: the names of roles, sorted, with a comma between.
        scopes: the scopes that it reaches, as a JSON list; None: all.
        created_us: when it was made.
        created_by: by whom.
        expires_us: from when on it is of no use.
        used_us: when it was used last, to the minute; None: never.
        revoked_us: when it was revoked; None: it was not.
        revoked_by: by whom.
    """

    id: bytes
    name: str
    secret_hash: bytes
    roles: str
    scopes: str | None
    created_us: int
    created_by: str
    expires_us: int
    used_us: int | None = None
    revoked_us: int | None = None
    revoked_by: str | None = None


class AddToken(msgspec.Struct, Asks["TokenFound"], frozen=True, kw_only=True):
    """Keep a token, unless there is one of that name; answers the one that is there then. Sent again, the same."""

    id: bytes
    name: str
    secret_hash: bytes
    roles: str
    scopes: str | None
    by: str
    lasts_us: int


class FindToken(msgspec.Struct, Asks["TokenFound"], frozen=True):
    """Ask for a token."""

    id: bytes


class TouchToken(msgspec.Struct, Asks["TokenFound"], frozen=True):
    """Note that a token was used, unless that was noted less than `every_us` ago."""

    id: bytes
    every_us: int


class ListTokens(msgspec.Struct, Asks["TokensFound"], frozen=True):
    """At most `limit` tokens after that name, by name."""

    after: str
    limit: int


class RevokeToken(msgspec.Struct, Asks["TokenFound"], frozen=True):
    """Have a token be of no use any more; answers None where there was none that was of use."""

    name: str
    by: str


class TokenFound(msgspec.Struct, frozen=True):
    """A token, if there is one, and the instant of the store."""

    token: StoredToken | None
    now_us: int


class TokensFound(msgspec.Struct, frozen=True):
    """Tokens by name, and the instant of the store."""

    tokens: tuple[StoredToken, ...]
    now_us: int


AboutTokens = AddToken | FindToken | TouchToken | ListTokens | RevokeToken
TokenAnswer = TokenFound | TokensFound
