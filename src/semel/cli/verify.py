"""stub."""


def verify() -> None:
    """Stub."""
