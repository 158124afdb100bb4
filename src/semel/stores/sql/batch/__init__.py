"""Batches on SQL servers: the plans that all of them share, and the statements that they understand alike."""
