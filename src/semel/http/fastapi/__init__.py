"""Keys for FastAPI: a dependency that claims after authentication, and a route class that captures and replays.

What always holds: the claim comes after every other dependency of the route, so who has lost the right gets 403 and no
replay. Requests without a key pass untouched. A dependency without the route class is refused.
"""

from semel.extras import requires

with requires("semel.http.fastapi", "fastapi"):
    from semel.http.fastapi.dependency import Idempotency
    from semel.http.fastapi.route import IdempotentRoute, describe

__all__ = ["Idempotency", "IdempotentRoute", "describe"]
