"""Where somebody goes on who had to sign in first: the page that they asked for, and never another site."""

from __future__ import annotations

from typing import Final
from urllib.parse import urlencode

from starlette.requests import Request

_TO: Final = "to"
_LONGEST: Final = 2000


def with_way_back(request: Request, sign_in: str) -> str:
    """The address of the page to sign in at, with the page that was asked for; a form is not sent again."""
    root: str = request.scope.get("root_path", "")
    place = request.url.path.removeprefix(root) or "/"
    if request.url.query:
        place += f"?{request.url.query}"
    if request.method != "GET" or place == "/" or not _is_local_path(place):
        return root + sign_in
    return f"{root}{sign_in}?{urlencode({_TO: place})}"


def way_back(request: Request) -> str:
    """The page that was asked for before somebody signed in; the first page where none of this site is named."""
    place = request.query_params.get(_TO, "/")
    root: str = request.scope.get("root_path", "")
    return root + (place if _is_local_path(place) else "/")


def _is_local_path(place: str) -> bool:
    """Whether it is a path of this site: two slashes, of either kind, would name another one to a browser."""
    is_path = place.startswith("/") and not place.startswith(("//", "/\\"))
    return is_path and len(place) <= _LONGEST and place.isascii() and place.isprintable()
