"""Batches on MySQL and MariaDB."""
