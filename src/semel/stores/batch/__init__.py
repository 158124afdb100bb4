"""Batches in memory, and what the SQL stores share about their rows."""
