"""The operators' server: admin API, metrics, maintenance and the console, alone or mounted in an application."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from semel.extras import requires
from semel.server.access import Permission, Role, User

if TYPE_CHECKING:
    from semel.server.console import console_app

__all__ = ["Permission", "Role", "User", "console_app"]


def __getattr__(name: str) -> Any:
    """`console_app`, whose packages are loaded only where it is used."""
    if name != "console_app":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    with requires("The console", "jinja2"), requires("The console", "starlette"):
        from semel.server.console import console_app
    return console_app
