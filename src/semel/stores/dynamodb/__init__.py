"""The DynamoDB store, and the caller's writes that it commits with its records."""

from semel.stores.dynamodb.store import DynamoStore
from semel.stores.dynamodb.transact import Writes

__all__ = ["DynamoStore", "Writes"]
