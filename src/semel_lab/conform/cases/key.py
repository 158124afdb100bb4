"""Cases about the header: which spellings are one key, and which are none.

What always holds: a header that is no key is refused before anything is looked up or run.
"""

from __future__ import annotations

from typing import Final

from semel_lab.conform.assertions import BAD_REQUEST, one_record, refused
from semel_lab.conform.case import Case, Failed, Passed, Verdict
from semel_lab.conform.http_client import Answer
from semel_lab.conform.probe import Probe, fresh
from semel_lab.conform.report import described

_LONGEST: Final = 255
_FIRST: Final = ("accepts-key",)
_REPLAY: Final = ("accepts-key", "replays", "one-effect")


def _accepts(probe: Probe) -> Verdict:
    reply = probe.settled(probe.line_of_fresh())
    if isinstance(reply, Answer) and reply.accepted:
        return Passed(str(reply.status))
    return Failed("2xx; if the sample body is not one the service takes, give another with --body", described(reply))


def _quoted_and_bare(probe: Probe) -> Verdict:
    key = fresh()
    quoted, bare = f'"{key}"'.encode(), key.encode()
    first, second = (bare, quoted) if probe.target.bare else (quoted, bare)
    return one_record(probe, first, second, or_refused=True)


def _parameters(probe: Probe) -> Verdict:
    line = f'"{fresh()}"'.encode()
    return one_record(probe, line, line + b";version=1;draft")


def _repeated(probe: Probe) -> Verdict:
    line = probe.line_of_fresh()
    for second in (line, probe.line_of_fresh()):
        verdict = refused(probe, line, second)
        if not isinstance(verdict, Passed):
            return verdict
    return Passed("400, with two keys and with one key twice")


def _list(probe: Probe) -> Verdict:
    return refused(probe, f'"{fresh()}", "{fresh()}"'.encode())


def _bad_escape(probe: Probe) -> Verdict:
    return refused(probe, f'"{fresh()}\\n"'.encode())


def _not_ascii(probe: Probe) -> Verdict:
    return refused(probe, f'"{fresh()}-é"'.encode(), or_silence=True)


def _control(probe: Probe) -> Verdict:
    return refused(probe, f'"{fresh()}\x01"'.encode(), or_silence=True)


def _empty(probe: Probe) -> Verdict:
    for line in (b'""', b""):
        verdict = refused(probe, line)
        if isinstance(verdict, Failed):
            return Failed(
                f"{verdict.expected} for {'an empty string' if line else 'a line without a value'}", verdict.seen
            )
    return Passed("400, with quotes and without")


def _too_long(probe: Probe) -> Verdict:
    key = fresh()
    return refused(probe, probe.line(key + "x" * (_LONGEST + 1 - len(key))))


def _missing(probe: Probe) -> Verdict:
    reply = probe.ask()
    if not probe.target.required:
        if isinstance(reply, Answer) and reply.accepted:
            return Passed(f"{reply.status}: passes through")
        return Failed("2xx; if a key is required there, say so with --required", described(reply))
    if not (isinstance(reply, Answer) and reply.status == BAD_REQUEST):
        return Failed("400", described(reply))
    link = any("describedby" in value for value in reply.values("link"))
    if not link and "problem+json" not in (reply.value("content-type") or ""):
        return Failed("400 with problem details or a Link to the documentation", described(reply))
    return Passed("400 that says where to read on")


CASES: Final = (
    Case(
        "accepts-key",
        "A first request with a key is carried out.",
        "draft 2.6",
        "must",
        "A service that refuses keys cannot be retried safely at all.",
        _accepts,
    ),
    Case(
        "quoted-and-bare",
        "The key in quotes and the same key bare are one record, or the bare one is refused.",
        "draft 2.1",
        "must",
        "Clients and proxies differ in quoting. Where it makes two records, a retry through another client runs again.",
        _quoted_and_bare,
        _REPLAY,
    ),
    Case(
        "parameters-ignored",
        "Parameters after the key do not make it another key.",
        "RFC 8941 3.1.2",
        "must",
        "A proxy or a later draft may add parameters; a retry with them would run again.",
        _parameters,
        _REPLAY,
    ),
    Case(
        "repeated-lines",
        "Two header lines with a key are refused.",
        "RFC 8941 4.2",
        "must",
        "Which of the two counts is decided by chance, at every hop anew, so a duplicate may run.",
        _repeated,
        _FIRST,
    ),
    Case(
        "list",
        "A list of keys is refused.",
        "RFC 8941 4.2",
        "must",
        "It is what repeated lines become behind a proxy that joins them.",
        _list,
        _FIRST,
    ),
    Case(
        "bad-escape",
        'An escape other than \\" and \\\\ is refused.',
        "RFC 8941 4.2.5",
        "must",
        "Two parsers would read two keys out of one line.",
        _bad_escape,
        _FIRST,
    ),
    Case(
        "non-ascii",
        "Bytes outside of ASCII are refused.",
        "RFC 8941 4.2.5",
        "must",
        "They are decoded differently on the way, so the same key arrives as two.",
        _not_ascii,
        _FIRST,
    ),
    Case(
        "control-character",
        "Control characters are refused.",
        "RFC 8941 4.2.5",
        "must",
        "They end up in logs and look-ups: the draft asks for the key to be checked before it is used.",
        _control,
        _FIRST,
    ),
    Case(
        "empty-key",
        "An empty key is refused.",
        "draft 5",
        "must",
        "A client that lost its key would share one record with all others that did, or run without protection.",
        _empty,
        _FIRST,
    ),
    Case(
        "too-long",
        "A key of more than 255 characters is refused.",
        "semel hard place",
        "should",
        "A key that a column cuts silently is the key of somebody else; without any limit it fills the store.",
        _too_long,
        _FIRST,
    ),
    Case(
        "missing-key",
        "Without a key a request is refused where keys are required, and passes through elsewhere.",
        "draft 2.7",
        "must",
        "A client that forgets its key should hear of it on the first day, not on the day of the first retry.",
        _missing,
        _FIRST,
    ),
)
