"""Batches on PostgreSQL."""
