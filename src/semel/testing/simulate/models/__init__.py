"""Models of the servers: what PostgreSQL and MySQL answer when callers bring transactions of their own.

The plain simulator runs on the memory store's table, where every operation takes effect at once. A server has more to
it: rows that are written and not committed, keys that an open transaction holds, snapshots that grow old. The rules of
a record stay those of the table; a model adds who may see, lock and write which version of it.

What always holds: a model is believed only because it was compared with the real server, answer by answer, over
thousands of random sequences (`tests/simulate/sequences.py`).
"""

from semel.testing.simulate.models.database import Act
from semel.testing.simulate.models.mysql import MysqlModel
from semel.testing.simulate.models.postgresql import PostgresModel
from semel.testing.simulate.models.server import Server
from semel.testing.simulate.models.transaction import Begin, Commit, Isolation, Rollback, Session

__all__ = ["Act", "Begin", "Commit", "Isolation", "MysqlModel", "PostgresModel", "Rollback", "Server", "Session"]
