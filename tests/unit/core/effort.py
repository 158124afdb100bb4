"""How hard a property test tries that is run for many kinds of values, or whose every example is long."""

from typing import Any

from hypothesis import settings


def fewer(part: int, **others: Any) -> settings:
    """So many times fewer examples than the profile in use asks for."""
    return settings(max_examples=max(1, settings().max_examples // part), **others)
