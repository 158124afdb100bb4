"""What the hospital knows about claims: balances, guides as XML, codes. No database, no engine."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Final
from xml.etree import ElementTree as ET

NAMESPACE = "http://www.ans.gov.br/padroes/tiss/schemas"


MOST: Final = Decimal("1000000000.00")
"""No claim is for more."""
_CENT: Final = Decimal("0.01")


class NoAmount(Exception):
    """This is no amount of money; nothing was done with it."""


@dataclass(frozen=True)
class Balance:
    """Who owes what for a claim."""

    insurance: Decimal
    adjustments: Decimal
    patient: Decimal

    @property
    def requires_billing(self) -> bool:
        """Whether the patient gets a bill."""
        return self.patient > 0


def balance_of(total: Decimal, insurance: Decimal, adjustments: Decimal) -> Balance:
    """What is left for the patient when the insurer has paid.

    Raises:
        NoAmount: one of them is no amount of money; only adjustments may be below zero.
    """
    for amount in (total, insurance, abs(adjustments)):
        if not 0 <= amount <= MOST or amount != amount.quantize(_CENT):
            raise NoAmount(f"{amount:.20} is not between 0 and {MOST}, or has more than two digits behind the point")
    return Balance(insurance, adjustments, total - insurance - adjustments)


@dataclass(frozen=True)
class Codes:
    """The codes of a procedure, and which program or person chose them."""

    codes: tuple[str, ...]
    chosen_by: str


def guide_of(claim: str, guide: str, codes: tuple[str, ...], procedure: date) -> bytes:
    """A guide in the form that insurers read (TISS), made in the same way every time."""
    root = ET.Element(f"{{{NAMESPACE}}}mensagemTISS")
    header = ET.SubElement(root, f"{{{NAMESPACE}}}guia")
    for name, text in (("numeroGuiaPrestador", guide), ("conta", claim), ("dataExecucao", procedure.isoformat())):
        ET.SubElement(header, f"{{{NAMESPACE}}}{name}").text = text
    for code in codes:
        ET.SubElement(header, f"{{{NAMESPACE}}}codigoProcedimento").text = code
    encoded: bytes = ET.tostring(root, encoding="utf-8", xml_declaration=True)
    return encoded
