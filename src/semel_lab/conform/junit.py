"""The report as JUnit XML, which every CI server can show.

What always holds: what does not decide about the exit code is not a failure there either. A should that failed is
written as skipped, with its message, unless the run is strict.
"""

from __future__ import annotations

from xml.etree import ElementTree as ET

from semel_lab.conform.case import Failed, NotSeen, Passed
from semel_lab.conform.report import Report, Result


def junit(report: Report, *, strict: bool = False) -> bytes:
    """The report as a document with one test suite."""
    counted = report.failed(strict=strict)
    suite = ET.Element(
        "testsuite",
        name="semel conform",
        tests=str(len(report.results)),
        failures=str(len(counted)),
        errors="0",
        skipped=str(len(report.results) - len(counted) - report.count("passed")),
        time=f"{report.seconds:.3f}",
    )
    for result in report.results:
        suite.append(_test(result, counts=result in counted))
    root = ET.Element("testsuites")
    root.append(suite)
    ET.indent(root)
    text: bytes = ET.tostring(root, encoding="utf-8", xml_declaration=True)
    return text + b"\n"


def _test(result: Result, *, counts: bool) -> ET.Element:
    case = result.case
    test = ET.Element("testcase", classname=f"conform.{case.severity}", name=case.id, time=f"{result.seconds:.3f}")
    match result.verdict:
        case Passed():
            pass
        case NotSeen(reason):
            ET.SubElement(test, "skipped", message=f"not seen: {reason}")
        case Failed(expected, seen):
            tag, begin = ("failure", "") if counts else ("skipped", "should: ")
            found = ET.SubElement(test, tag, message=f"{begin}expected {expected}; seen {seen}")
            found.text = (
                f"{case.checks} ({case.rule})\nexpected: {expected}\nseen: {seen}\nwhy it matters: {case.why}\n"
            )
    return test
