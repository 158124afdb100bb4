"""The operators' server: admin API, metrics, maintenance and the console, alone or mounted in an application."""

from semel.server.access import Permission, Role, User

__all__ = ["Permission", "Role", "User"]
