"""HTTP: keys for requests, in every framework, over one exchange.

`exchange` decides what becomes of a request and has no I/O; `asgi`, `wsgi`, `django`, `drf`, `fastapi` and `flask`
carry it out. What always holds: the same request gets the same verdict everywhere.
"""

from semel.http.route import Route
from semel.http.transaction import transaction

__all__ = ["Route", "transaction"]
