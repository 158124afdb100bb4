"""The death of a process, as a test plays it inside a handler.

Invariant: after a `Crash` an engine writes nothing for the attempt that raised it, and renews nothing, as if its
process had been killed. Other calls of the process go on.
"""

from __future__ import annotations


class Crash(BaseException):
    """Ends an attempt as SIGKILL would: its record stays as it is until its lease ends. For tests alone."""
