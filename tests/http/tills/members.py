"""Every till, by name, and the database it is opened on."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from tests.http.tills import libraries as by
from tests.http.tills.awaited import FastapiTill, StarletteTill
from tests.http.tills.called import FlaskTill, WsgiTill
from tests.http.tills.django_tills import DecoratedTill, DjangoTill, RestTill
from tests.http.tills.till import Till

MEMBERS: Final[dict[str, tuple[str, Callable[[str], Till]]]] = {
    "starlette-session": ("postgresql", partial(StarletteTill, library=by.AsyncSqlalchemy)),
    "starlette-core": ("postgresql", partial(StarletteTill, library=by.AsyncCore)),
    "starlette-asyncpg": ("postgresql", partial(StarletteTill, library=by.Asyncpg)),
    "starlette-sqlite": ("sqlite", partial(StarletteTill, library=by.AsyncSqlalchemy)),
    "fastapi-session": ("postgresql", partial(FastapiTill, library=by.AsyncSqlalchemy)),
    "fastapi-asyncpg": ("postgresql", partial(FastapiTill, library=by.Asyncpg)),
    "fastapi-psycopg": ("postgresql", partial(FastapiTill, library=by.AsyncPsycopg)),
    "fastapi-sqlite": ("sqlite", partial(FastapiTill, library=by.AsyncSqlalchemy)),
    "wsgi-psycopg": ("postgresql", partial(WsgiTill, library=by.Psycopg)),
    "wsgi-sqlite3": ("sqlite", partial(WsgiTill, library=by.Sqlite)),
    "flask-session": ("postgresql", partial(FlaskTill, library=by.Sqlalchemy)),
    "flask-sqlite": ("sqlite", partial(FlaskTill, library=by.Sqlalchemy)),
    "django-postgresql": ("postgresql", DjangoTill),
    "django-sqlite": ("sqlite", DjangoTill),
    "decorator-postgresql": ("postgresql", DecoratedTill),
    "decorator-sqlite": ("sqlite", DecoratedTill),
    "drf-postgresql": ("postgresql", RestTill),
    "drf-sqlite": ("sqlite", RestTill),
}
