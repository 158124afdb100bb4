"""Encrypted connections: `rediss://`, with a certificate that is checked."""

import shutil
import subprocess
from pathlib import Path

import pytest

from semel.core.operations import Granted
from semel.errors import StoreUnavailable
from semel.stores.redis import RedisStore
from tests.servers import redis
from tests.servers.server import HOST, free_port
from tests.stores.redis.kit import Asker
from tests.stores.redis.test_servers import Start
from tests.unit.stores.operations import Clock, claim

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificate"),
]


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that everybody may read, with a key and a certificate for the loopback address."""
    folder = tmp_path_factory.mktemp("tls")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=semel",
         "-addext", f"subjectAltName=IP:{HOST}", "-keyout", "key.pem", "-out", "cert.pem"],
        cwd=folder, check=True, capture_output=True,
    )  # fmt: skip
    return folder


def test_records_are_kept_over_tls(start_redis: Start, colour: type[Asker], certificate: Path) -> None:
    with start_redis() as server:
        port = free_port()
        files = {}
        for name in ("key", "cert"):
            files[name] = copy = server.folder / f"{name}.pem"
            shutil.copyfile(certificate / copy.name, copy)
            copy.chmod(0o644)
        settings = {
            "tls-cert-file": files["cert"],
            "tls-key-file": files["key"],
            "tls-ca-cert-file": files["cert"],
            "tls-auth-clients": "no",
            "tls-port": port,
        }
        words = [str(word) for setting in settings.items() for word in setting]
        redis.said(server.endpoint.url, "CONFIG", "SET", *words)
        known = colour(RedisStore(f"rediss://{HOST}:{port}/0?ssl_ca_certs={certificate / 'cert.pem'}"), Clock())
        stranger = colour(RedisStore(f"rediss://{HOST}:{port}/0"), Clock())
        try:
            known.one(claim(), Granted)
            (answer,) = stranger.all([claim()])
            assert isinstance(answer, StoreUnavailable)
            assert "certificate" in answer.message.lower()
        finally:
            known.close()
            stranger.close()
