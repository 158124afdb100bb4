"""The audit chain and tokens on MySQL and MariaDB: what they say in their own way."""
