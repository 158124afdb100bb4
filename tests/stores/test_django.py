"""`django://alias` is the database of Django's settings."""

import json
import subprocess
import sys
import textwrap

import pytest

from semel.stores.django import url_of
from tests.servers.databases import Databases

pytestmark = pytest.mark.slow

PROGRAM = """
import json, sys
import pymysql
from urllib.parse import urlsplit
from django.conf import settings
from semel import Semel

pymysql.install_as_MySQLdb()
semel = Semel("django://default")  # before Django knows its databases
parts = urlsplit(sys.argv[1])
engine = {"postgresql": "postgresql", "mysql": "mysql", "sqlite": "sqlite3"}[parts.scheme]
name = parts.path[1:] if parts.scheme != "sqlite" else parts.path
settings.configure(DATABASES={"default": {
    "ENGINE": f"django.db.backends.{engine}", "NAME": name, "HOST": parts.hostname or "", "PORT": parts.port or "",
    "USER": parts.username or "", "PASSWORD": parts.password or "",
}})
import django
django.setup()
from django.db import connection, transaction

outside = semel.run("k", lambda: "paid", operation="pay", fingerprint=None)
with transaction.atomic():
    inside = semel.within(connection).run("in", lambda: "paid", operation="pay", fingerprint=None)
again = semel.run("in", lambda: "twice", operation="pay", fingerprint=None)
print(json.dumps([outside.value, inside.replayed, again.value, again.replayed]))
semel.close()
"""


def ran(url: str) -> list[object]:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(PROGRAM), url], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    found: list[object] = json.loads(done.stdout)
    return found


def test_on_postgresql(postgresql: Databases) -> None:
    assert ran(postgresql.new_database()) == ["paid", False, "paid", True]


def test_on_mariadb(mariadb: Databases) -> None:
    assert ran(mariadb.new_database()) == ["paid", False, "paid", True]


@pytest.mark.parametrize(
    ("given", "url"),
    [
        ({"NAME": "shop"}, "postgresql:///shop"),
        ({"NAME": "shop", "USER": "a b", "PASSWORD": "p@ss/word"}, "postgresql://a%20b:p%40ss%2Fword@/shop"),
        ({"NAME": "shop", "HOST": "db", "PORT": 5433}, "postgresql://db:5433/shop"),
        ({"NAME": "shop", "HOST": "/run/pg"}, "postgresql:///shop?host=%2Frun%2Fpg"),
        ({"NAME": "shop", "OPTIONS": {"sslmode": "require", "pool": True}}, "postgresql:///shop?sslmode=require"),
    ],
    ids=["name", "login", "host", "socket", "options"],
)
def test_the_url_of_django_s_settings(given: dict[str, object], url: str) -> None:
    assert url_of("postgresql", given) == url
