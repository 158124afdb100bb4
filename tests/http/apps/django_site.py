"""What the Django sites share: their settings, and how a reply of the shop is sent."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.http import HttpResponse

from semel.http import Route
from tests.http import shop


def configure(name: str, semel: Any) -> None:
    """The settings of a project in one module: authentication, then semel."""
    if settings.configured:
        return
    settings.configure(
        ALLOWED_HOSTS=["*"],
        ROOT_URLCONF=name,
        MIDDLEWARE=[f"{name}.Authentication", "semel.http.django.IdempotencyMiddleware"],
        SEMEL={
            "semel": semel,
            "scope": lambda request: request.native.caller,
            "routes": [*(Route(path, **given) for path, given in shop.route_settings().items()), Route("/**")],
        },
    )


def sent(reply: shop.Reply) -> HttpResponse:
    """As Django sends it: one value for each header, except for cookies."""
    response = HttpResponse(reply.body, status=reply.status)
    del response.headers["Content-Type"]
    for name, value in reply.headers:
        if name == "Set-Cookie":
            response.set_cookie(*value.split("=", 1))
        else:
            known = response.headers.get(name)
            response.headers[name] = value if known is None else f"{known}, {value}"
    return response
