"""Django connections for tests: each an alias of its own, so that a test can have several to one database."""

import itertools
from typing import Any
from urllib.parse import urlsplit

import django
import pymysql
from django.apps import apps
from django.conf import settings as django_settings
from django.db import connections

_numbers = itertools.count(1)
_ENGINES = {"sqlite": "sqlite3", "postgresql": "postgresql", "mysql": "mysql"}


def new_connection(url: str, **options: Any) -> Any:
    """A connection under a new alias, as `django.db.connections[alias]` gives it."""
    if not django_settings.configured:
        django_settings.configure(USE_TZ=True, DATABASES={})
    if not apps.ready:
        django.setup()
    parts = urlsplit(url)
    if parts.scheme == "mysql":
        pymysql.install_as_MySQLdb()  # as Django's users do who have no compiler for mysqlclient
    alias = f"semel_{next(_numbers)}"
    described = {
        "ENGINE": f"django.db.backends.{_ENGINES[parts.scheme]}",
        "NAME": parts.path.removeprefix("/"),
        "USER": parts.username or "",
        "PASSWORD": parts.password or "",
        "HOST": parts.hostname or "",
        "PORT": parts.port or "",
        "OPTIONS": options,
    }
    connections.settings[alias] = connections.configure_settings({"default": {}, alias: described})[alias]
    return connections[alias]
