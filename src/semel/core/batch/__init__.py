"""Batches: what a store keeps of them, and what it may be asked about them."""
