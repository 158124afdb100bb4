"""The outbox on DynamoDB."""
