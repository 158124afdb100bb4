"""The audit chain and tokens on PostgreSQL: what it says in its own way."""
