"""Whom tests trust over TLS: nobody, unless a test says otherwise.

A client that may speak TLS reads the certificates of every authority of the machine, for each new connection or pool:
some 50 ms of processor time, thousands of times in a run. Tests speak to this machine only, and where they do it over
TLS they name the certificate. So they, and what they start, get a file with one certificate whose key was thrown away.
What always holds: whatever installs a server trusts as before, and so does a run that uses servers of somebody else.
"""

import os
from pathlib import Path

import certifi

_VARIABLE = "SSL_CERT_FILE"
_BEFORE = "SEMEL_SSL_CERT_FILE_BEFORE"
_NOBODY = str(Path(__file__).with_name("nobody.pem"))


def trust_nobody() -> None:
    """Have this process and its children read one certificate instead of all."""
    if any(name.startswith("SEMEL_TEST_") and name.endswith("_URL") for name in os.environ):
        return
    if os.environ.get(_VARIABLE) != _NOBODY:  # a worker inherits it from the process that started it
        os.environ[_BEFORE] = os.environ.get(_VARIABLE, "")
        os.environ[_VARIABLE] = _NOBODY
    certifi.where = _where_nobody_is  # for clients that are told to leave the environment alone


def _where_nobody_is() -> str:
    return _NOBODY


def environment_outside() -> dict[str, str]:
    """The environment of a program that reaches beyond this machine."""
    inherited = dict(os.environ)
    if (before := inherited.pop(_BEFORE, None)) is not None:
        inherited.pop(_VARIABLE, None)
        if before:
            inherited[_VARIABLE] = before
    return inherited
