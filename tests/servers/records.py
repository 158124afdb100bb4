"""The records of a database that many tests use one after the other: the tables made once, the rows deleted for each.

What always holds: a test finds the tables empty. To delete the few rows of the last one costs a server less than to
truncate: that makes new files for every table and index.
"""

import functools

from semel import Semel
from semel.stores.urls import store_from_url
from tests.servers.databases import Databases

TABLES = (
    *("semel_record", "semel_step", "semel_invalidation", "semel_search"),
    *("semel_history", "semel_worker", "semel_letter"),
    *("semel_outbox", "semel_cursor", "semel_parked"),
    *("semel_batch", "semel_item", "semel_page"),
    *("semel_audit", "semel_audit_head", "semel_audit_seal", "semel_token"),
)
EXPIRE_AUDIT = "UPDATE semel_audit_head SET kept_from = seq + 1"
"""Entries of the audit chain are deleted only once they have expired."""
FORGET_SWEEPS = "DELETE FROM semel_meta WHERE name = 'sweep'"
"""The virtual clock of each test begins at the same instant: what sweeps noted in the last one is of the future."""


def emptied(databases: Databases, url: str, *before: str) -> str:
    """The same URL, once semel's tables are there and empty; the statements in `before` are run first."""
    _made(url)
    deletions = [f"DELETE FROM {table}" for table in TABLES]  # noqa: S608 - names above
    databases.admin_each([*before, EXPIRE_AUDIT, *deletions, FORGET_SWEEPS], url)
    return url


@functools.cache
def _made(url: str) -> None:
    with Semel(store_from_url(url)) as semel:
        semel.read("nothing", operation="nothing")
