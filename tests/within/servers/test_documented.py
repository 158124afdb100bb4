"""The examples of docs/how-to/join-a-transaction.md that need a server, run on one."""

import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.docs.pages import Block, page
from tests.servers.databases import Databases

BLOCKS = page("docs/how-to/join-a-transaction.md").blocks
POSTGRESQL = [block for block in BLOCKS if block.rest == "needs a PostgreSQL server"]
MYSQL = [block for block in BLOCKS if block.rest == "needs a MySQL server"]


def placed(text: str, url: str) -> str:
    """An example that talks to the database at `url`."""
    at = urlsplit(url)
    for shown, real in (
        ("://localhost/shop", f"://{at.netloc}{at.path}"),
        ("://semel@localhost:3306/shop", f"://{at.netloc}{at.path}"),
        ('host="localhost"', f'host="{at.hostname}"'),
        ("port=3306", f"port={at.port}"),
        ('user="semel"', f'user="{at.username}"'),
        ('database="shop"', f'database="{at.path[1:]}"'),
    ):
        text = text.replace(shown, real)
    return text


def prove(block: Block, databases: Databases, folder: Path) -> None:
    """Run an example; afterwards its row is there, and its record."""
    url = databases.new_database()
    databases.admin("CREATE TABLE payment (order_id varchar(40), cents integer)", url)
    program = folder / "example.py"
    program.write_text(placed(block.text, url), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-W", "error", str(program)], capture_output=True, text=True, check=False, timeout=100
    )
    assert done.returncode == 0, done.stderr
    assert databases.admin("SELECT order_id, cents FROM payment", url) == [("o-1", 1250)]
    assert databases.admin("SELECT status FROM semel_record", url) == [("completed",)]


@pytest.mark.parametrize("number", range(len(POSTGRESQL)))
def test_an_example_on_postgresql_commits_its_row_and_its_record(
    number: int, postgresql: Databases, tmp_path: Path
) -> None:
    prove(POSTGRESQL[number], postgresql, tmp_path)


@pytest.mark.parametrize("number", range(len(MYSQL)))
def test_an_example_on_mariadb_commits_its_row_and_its_record(number: int, mariadb: Databases, tmp_path: Path) -> None:
    prove(MYSQL[number], mariadb, tmp_path)


def test_there_is_one_for_every_library() -> None:
    shown = "".join(block.text for block in (*POSTGRESQL, *MYSQL))
    assert [name for name in ("psycopg", "asyncpg", "sqlalchemy", "pymysql", "asyncmy") if name not in shown] == []
