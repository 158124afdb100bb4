"""Batches: many items, each of which happens once, resumed after any crash."""

from semel.batch.batches import Batch, Batches
from semel.batch.engines.single import item
from semel.batch.items import Item, ItemResult, Skip
from semel.batch.status import BatchStatus
from semel.errors import BatchChanged, BatchInvalid

__all__ = ["Batch", "BatchChanged", "BatchInvalid", "BatchStatus", "Batches", "Item", "ItemResult", "Skip", "item"]
