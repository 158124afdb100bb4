"""The audit chain and tokens on SQLite: what it says in its own way."""
