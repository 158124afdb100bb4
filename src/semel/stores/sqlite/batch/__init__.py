"""Batches on SQLite."""
