"""What the pages of all examples have in common: templates, style, headers, and who may send what.

What always holds: nothing of a service is imported here, so that a process that only shows pages starts fast.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from starlette.requests import Request

HERE: Final = Path(__file__).parent
"""Where `templates` and `static` are."""
# Nothing from elsewhere, nothing inline: what a guest types can never become a script.
POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS: Final = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    # Not `no-store`: that would keep the page out of the browser's back/forward cache.
    "Cache-Control": "private, no-cache",
    "Vary": "Cookie",
}


def is_of_another_site(request: Request) -> bool:
    """Browsers say so, in one header or the other; a program that is no browser has no cookie to be tricked with."""
    origin = request.headers.get("origin")
    elsewhere = origin is not None and urlsplit(origin).netloc != request.headers.get("host")
    return elsewhere or request.headers.get("sec-fetch-site", "none") not in ("same-origin", "none")
