"""The pages as a process: `python -m examples.hospital.serving --fd 3`, on a socket of whoever started it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.applications import Starlette

from examples.hospital.clients import Books, Insurer
from examples.hospital.coder import Coder
from examples.hospital.delegates import Outside
from examples.hospital.instances import Instances
from examples.hospital.pages import Pages
from examples.hospital.settings import Settings
from examples.launching.serving import serve


def make_app(settings: Settings) -> Starlette:
    """The application by these settings; nothing is connected yet."""
    outside = Outside(Insurer(settings.insurer), Books(settings.books), Coder(settings.codes))
    pages = Pages(Instances(settings.database), outside)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        yield
        pages.close()

    return Starlette(routes=pages.routes(), lifespan=lifespan)


if __name__ == "__main__":
    serve("examples.hospital.serving", lambda: make_app(Settings.from_environment()))
