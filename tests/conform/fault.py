"""A wrong service with one fault: its docstring says which, and `told_by` names the case that sees it."""

from __future__ import annotations

from typing import ClassVar

from tests.conform.service import Service


class Fault(Service):
    told_by: ClassVar[str]
