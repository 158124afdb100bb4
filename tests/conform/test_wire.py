"""The client: exact bytes out, values back, never an error and never a wait without end."""

from __future__ import annotations

import socket
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from semel_lab.conform.http_client import Answer, Request, Silence, Wire

pytestmark = pytest.mark.slow

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-A: 1\r\nX-A: 2\r\n\r\nok"


class Peer:
    """Takes one connection, keeps what it got, and answers with fixed bytes."""

    def __init__(self, answer: bytes | None, context: ssl.SSLContext | None = None) -> None:
        self.answer = answer
        self.context = context
        self.got = b""
        self.let_go = threading.Event()

    def serve(self, listener: socket.socket) -> None:
        plain, _ = listener.accept()
        # Under TLS, hanging up is an error to the one who reads or writes.
        with (
            suppress(OSError),
            self.context.wrap_socket(plain, server_side=True) if self.context else plain as connection,
        ):
            while not self._complete() and (data := connection.recv(65536)):
                self.got += data
            if self.answer is None:
                self.let_go.wait(60)
            else:
                connection.sendall(self.answer)

    def _complete(self) -> bool:
        head, blank, body = self.got.partition(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0] or 0)
        return bool(blank) and len(body) >= length


@contextmanager
def meeting(peer: Peer) -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=peer.serve, args=(listener,))
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            peer.let_go.set()
            thread.join(60)


def test_header_bytes_are_sent_as_they_are() -> None:
    peer = Peer(OK)
    request = Request("POST", "/p?q=1", (("K", b'"\x01\xff\\n"'), ("K", b"")), b"body")
    with meeting(peer) as port:
        Wire("127.0.0.1", port).exchange(request)
    head = f"POST /p?q=1 HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n".encode()
    assert peer.got == head + b'K: "\x01\xff\\n"\r\nK: \r\nContent-Length: 4\r\n\r\nbody'


def test_an_answer_keeps_every_line_of_a_field() -> None:
    with meeting(Peer(OK)) as port:
        reply = Wire("127.0.0.1", port).exchange(Request("GET", "/"))
    assert isinstance(reply, Answer)
    assert (reply.status, reply.body, reply.values("X-A"), reply.value("x-b")) == (200, b"ok", ["1", "2"], None)


def test_an_answer_in_chunks_behind_an_early_one_is_read() -> None:
    chunks = (
        b"HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 201 Made\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"
    )
    with meeting(Peer(chunks)) as port:
        reply = Wire("127.0.0.1", port).exchange(Request("POST", "/"))
    assert reply == Answer(201, (("transfer-encoding", "chunked"),), b"ok")


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf", b"what?\r\n\r\n"])
def test_what_is_no_whole_answer_is_silence(answer: bytes) -> None:
    with meeting(Peer(answer)) as port:
        assert isinstance(Wire("127.0.0.1", port).exchange(Request("POST", "/")), Silence)


def test_a_service_that_never_answers_is_not_waited_for() -> None:
    with meeting(Peer(None)) as port:
        reply = Wire("127.0.0.1", port, timeout=0.1).exchange(Request("POST", "/"))
    assert reply == Silence("no answer in time")


def test_nobody_there_is_silence() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    assert isinstance(Wire("127.0.0.1", port).exchange(Request("POST", "/")), Silence)


@pytest.mark.parametrize(
    ("sent", "announced"), [(b"half", b"8"), (b"the body", b"24")], ids=["half of it", "all of it and more announced"]
)
def test_a_cut_upload_announces_more_than_it_sends(sent: bytes, announced: bytes) -> None:
    peer = Peer(b"")
    with meeting(peer) as port:
        Wire("127.0.0.1", port).cut(Request("POST", "/", (), b"the body"), sent)
    assert peer.got.endswith(b"Content-Length: " + announced + b"\r\n\r\n" + sent)


def test_leaving_sends_all_and_reads_nothing() -> None:
    peer = Peer(b"")
    with meeting(peer) as port:
        Wire("127.0.0.1", port).leave(Request("POST", "/", (), b"the body"))
    assert peer.got.endswith(b"the body")


@pytest.fixture
def certificate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A certificate for localhost that this process trusts."""
    path = tmp_path / "localhost.pem"
    kind = "-x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 1"
    names = "-subj /CN=localhost -addext subjectAltName=DNS:localhost"
    files = f"-keyout {tmp_path / 'key.pem'} -out {path}"
    subprocess.run(f"openssl req {kind} {names} {files}".split(), check=True, capture_output=True)
    monkeypatch.setenv("SSL_CERT_FILE", str(path))
    return path


def secure(certificate: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, certificate.with_name("key.pem"))
    return context


@pytest.mark.parametrize(
    ("act", "last"),
    [
        (lambda wire, request: wire.exchange(request), b"the body"),
        (lambda wire, request: wire.cut(request, b"half"), b"half"),
    ],
    ids=["exchange", "cut"],
)
def test_the_same_goes_through_tls(act: Callable[[Wire, Request], object], last: bytes, certificate: Path) -> None:
    peer = Peer(OK, secure(certificate))
    with meeting(peer) as port:
        act(Wire("localhost", port, tls=True), Request("POST", "/", (), b"the body"))
    assert peer.got.endswith(last)
