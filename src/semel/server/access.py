"""Who may do what: users, their roles, and the permissions that API, console and command line share by name.

- A permission is asked for by name in one place, `User.may`; nothing else compares roles.
- A user without scopes named reaches every scope; one with scopes reaches exactly those, and the rest does not exist
  for them.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Final

from semel.errors import UsageError


class Permission(StrEnum):
    """One thing that an operator can do; the command of that name does the same."""

    LIST = "list"
    SHOW = "show"
    BODY = "body"
    RESOLVE = "resolve"
    CANCEL = "cancel"
    FAIL = "fail"
    RELEASE = "release"
    REOPEN = "reopen"
    FORCE = "force"
    ERASE = "erase"
    REDRIVE = "redrive"
    DISCARD = "discard"
    BATCH = "batch"
    SWEEP = "sweep"
    AUDIT = "audit"
    TOKENS = "tokens"


class Role(StrEnum):
    """A name for permissions that belong together."""

    VIEWER = "viewer"
    OPERATOR = "operator"
    ERASER = "eraser"
    ADMIN = "admin"


_LOOKING: Final = frozenset({Permission.LIST, Permission.SHOW})
_OPERATING: Final = _LOOKING | {
    Permission.BODY,
    Permission.RESOLVE,
    Permission.CANCEL,
    Permission.FAIL,
    Permission.RELEASE,
    Permission.REOPEN,
    Permission.REDRIVE,
    Permission.DISCARD,
    Permission.BATCH,
    Permission.SWEEP,
}
PERMISSIONS: Final = {
    Role.VIEWER: _LOOKING,
    Role.OPERATOR: _OPERATING,
    Role.ERASER: _LOOKING | {Permission.ERASE},
    Role.ADMIN: frozenset(Permission),
}
"""What each role permits. Ending a live lease by force, reading the audit chain and making tokens are an admin's."""


class User:
    """Somebody who has signed in: a name for the audit chain, roles, and the scopes that they may see.

    Raises:
        UsageError: the name is empty, or a role does not exist.
    """

    __slots__ = ("name", "permissions", "roles", "scopes")
    name: str
    roles: frozenset[Role]
    scopes: frozenset[str] | None
    permissions: frozenset[Permission]

    def __init__(self, name: str, roles: Iterable[str], scopes: Iterable[str] | None = None) -> None:
        if not name.strip():
            message = "User() needs a name: it is what the audit chain says of who did something."
            raise UsageError(message)
        unknown = sorted(set(roles) - set(Role))
        if unknown:
            message = f"There is no role {unknown[0]!r}; the roles are {', '.join(Role)}."
            raise UsageError(message)
        self.name = name
        self.roles = frozenset(Role(role) for role in roles)
        self.scopes = None if scopes is None else frozenset(scopes)
        self.permissions = frozenset[Permission]().union(*(PERMISSIONS[role] for role in self.roles))

    def __repr__(self) -> str:
        return f"User({self.name!r}, roles={{{', '.join(sorted(self.roles))}}})"

    def may(self, permission: Permission, scope: str | None = None) -> bool:
        """Whether this user has a permission, and reaches the scope where one is named."""
        return permission in self.permissions and (scope is None or self.reaches(scope))

    def reaches(self, scope: str) -> bool:
        """Whether what is in this scope exists for this user."""
        return self.scopes is None or scope in self.scopes
