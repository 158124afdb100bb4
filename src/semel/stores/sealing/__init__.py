"""Sealing at the boundary of a store: what goes in is sealed, what comes out is opened."""

from semel.stores.sealing.store import SealedStore

__all__ = ["SealedStore"]
