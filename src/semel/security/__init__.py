"""Keeping what is stored from being read, or changed unnoticed, by others: keys that seal it."""

from semel.security.keyring import Keyring
from semel.security.resealing import reseal
from semel.stores.sealing.resealing import ResealReport

__all__ = ["Keyring", "ResealReport", "reseal"]
