"""Keeping what is stored from being read, or changed unnoticed, by others: keys that seal it."""

from semel.security.keyring import Keyring

__all__ = ["Keyring"]
