"""Keys for Django: a middleware, a decorator for single views, and the transaction of a request.

What always holds: the same request gets the same verdict as in every other framework. Views run as Django runs them,
in a thread or awaited; whichever it is, the outcome is recorded before the last byte is sent.
"""

from semel.extras import requires

with requires("semel.http.django", "django"):
    from semel.http.django.decorator import idempotent
    from semel.http.django.middleware import IdempotencyMiddleware
    from semel.http.django.transactions import atomic

__all__ = ["IdempotencyMiddleware", "atomic", "idempotent"]
