"""The store that a Django project already has."""

from semel.stores.django.store import DjangoStore

__all__ = ["DjangoStore"]
