"""A cache may be a cluster, or what Sentinels name."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from semel import Semel
from tests.servers.redis_cluster import ClusterKeys
from tests.servers.redis_sentinel import Watched

pytestmark = pytest.mark.slow


def cached(path: Path, url: str) -> int:
    """How many of twelve keys a second process is given by the cache."""
    cache = f"{url}{'&' if '?' in url else '?'}timeout=5"
    with Semel(path, cache=cache) as first, Semel(path, cache=cache) as second:
        for key in [f"k-{number}" for number in range(12)] * 2:
            first.run(key, lambda: "kept", operation="pay", fingerprint=None)
        return sum(
            second.run(f"k-{number}", lambda: "kept", operation="pay", fingerprint=None).cache == "hit"
            for number in range(12)
        )


def test_a_cluster_caches(tmp_path: Path, redis_cluster_keys: ClusterKeys) -> None:
    redis_cluster_keys.empty()
    assert cached(tmp_path / "semel.db", redis_cluster_keys.url) == 12


def test_a_primary_that_sentinels_name_caches(
    tmp_path: Path, start_redis_sentinel: Callable[..., AbstractContextManager[Watched]]
) -> None:
    with start_redis_sentinel() as watched:
        assert cached(tmp_path / "semel.db", watched.url) == 12
