"""Models of the servers: what each answers beyond what the memory store's table says.

The plain simulator runs on that table, where every operation takes effect at once and nothing is forgotten. A server
has more to it. PostgreSQL and MySQL: rows that are written and not committed, keys that an open transaction holds,
snapshots that grow old. Redis: keys that are evicted, writes that a failover takes back. DynamoDB: several requests for
one operation, readings that lag, deletions that come late. The rules of a record stay those of the table.

What always holds: a model is believed only because it was compared with the real server, answer by answer, over
thousands of random sequences (`tests/simulate/sequences.py`).
"""

from semel_lab.simulate.models.database import Act
from semel_lab.simulate.models.dynamodb import DynamoModel, Expire
from semel_lab.simulate.models.mysql import MysqlModel
from semel_lab.simulate.models.postgresql import PostgresModel
from semel_lab.simulate.models.redis import Evict, Forget, RedisModel
from semel_lab.simulate.models.server import Server
from semel_lab.simulate.models.transaction import Begin, Commit, Isolation, Rollback, Session

__all__ = [
    "Act",
    "Begin",
    "Commit",
    "DynamoModel",
    "Evict",
    "Expire",
    "Forget",
    "Isolation",
    "MysqlModel",
    "PostgresModel",
    "RedisModel",
    "Rollback",
    "Server",
    "Session",
]
