"""Stores with an outbox, each with a way to add events in a transaction of the caller."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncmy
import asyncpg
import pytest

from semel import AsyncSemel
from semel.stores.memory import MemoryStore
from semel.stores.urls import store_from_url
from tests.servers.databases import Databases
from tests.servers.records import emptied
from tests.within.servers.callers import mysql_arguments

TRANSACTIONAL = ("sqlite", "postgresql", "mariadb")
ALL = ("memory", *TRANSACTIONAL)


@dataclass
class Place:
    """A store: `semel()` makes another engine on it, `transaction()` begins one of the caller's own.

    What it gives has a method `within`, the connection for semel, and `execute`, which runs a statement of the caller.
    """

    name: str
    semel: Callable[[], AsyncSemel]
    transaction: Callable[[], AbstractAsyncContextManager[Any]]
    rows: Callable[[str], list[Any]]
