"""The DynamoDB store."""

from semel.stores.dynamodb.store import DynamoStore

__all__ = ["DynamoStore"]
