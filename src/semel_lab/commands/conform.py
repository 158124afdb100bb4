"""`semel conform`: judge any HTTP service that takes a key, from outside, and show what was seen."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urljoin

import typer
from rich import box
from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from semel.cli.exit_codes import OTHER, usage_error
from semel.cli.printing import as_text, console
from semel.extras import requires
from semel.texts import clean

if TYPE_CHECKING:
    from semel_lab.conform import Report, Result

_STYLES = {"passed": ("✔ passed", "green"), "failed": ("✘ failed", "bold red"), "not seen": ("– not seen", "yellow")}
_SHOULD = ("✘ should", "bold yellow")
_REQUEST, _SIGHT, _APP, _OUTPUT = "The request", "What makes more visible", "An app of this machine", "Output"


def _option(help_: str, panel: str, metavar: str | None = None) -> Any:
    return typer.Option(help=help_, rich_help_panel=panel, metavar=metavar, show_default=False)


def conform(
    url: Annotated[
        str | None, typer.Argument(metavar="[URL]", help="Where the request goes; with --app or --wsgi, its path.")
    ] = None,
    *,
    target: Annotated[Path | None, _option("A TOML file with these options as settings.", _REQUEST, "FILE")] = None,
    method: Annotated[str | None, _option("How it is sent. Default: POST.", _REQUEST)] = None,
    body: Annotated[str | None, _option("What is sent, or @FILE.", _REQUEST)] = None,
    content_type: Annotated[str | None, _option("Its type. Default: application/json.", _REQUEST)] = None,
    header: Annotated[str | None, _option("The header with the key. Default: Idempotency-Key.", _REQUEST)] = None,
    bare: Annotated[
        bool | None, typer.Option("--bare", help="Send keys without quotes.", rich_help_panel=_REQUEST)
    ] = None,
    with_: Annotated[
        list[str] | None,
        typer.Option(
            "--with", help='More headers: "Authorization: Bearer a".', rich_help_panel=_REQUEST, show_default=False
        ),
    ] = None,
    required: Annotated[
        bool | None, typer.Option("--required", help="Keys are required there.", rich_help_panel=_REQUEST)
    ] = None,
    reused_status: Annotated[
        int | None, _option("The status for another body under the same key. Default: 422.", _REQUEST)
    ] = None,
    running_status: Annotated[
        int | None, _option("A status for a duplicate of what still runs, beside 409, 425 and 429.", _REQUEST)
    ] = None,
    timeout: Annotated[float | None, _option("Seconds to wait for an answer. Default: 10.", _REQUEST)] = None,
    effects: Annotated[str | None, _option("A GET there answers how many effects there were.", _SIGHT, "URL")] = None,
    effects_pointer: Annotated[str | None, _option("Which number of its JSON: /count.", _SIGHT)] = None,
    other_body: Annotated[str | None, _option("Another body. Default: one member changed.", _SIGHT)] = None,
    slow_body: Annotated[str | None, _option("A body that takes a while.", _SIGHT)] = None,
    other_caller: Annotated[
        list[str] | None, _option("The headers of somebody else, instead of --with.", _SIGHT)
    ] = None,
    other_path: Annotated[str | None, _option("Another path that takes the same body.", _SIGHT)] = None,
    copies: Annotated[int | None, _option("How many duplicates at once. Default: 20.", _SIGHT)] = None,
    app: Annotated[str | None, _option("Serve this ASGI app with uvicorn.", _APP, "MODULE:APP")] = None,
    wsgi: Annotated[str | None, _option("Serve this WSGI app.", _APP, "MODULE:APP")] = None,
    log: Annotated[Path | None, _option("Write what that app prints.", _APP, "FILE")] = None,
    json: Annotated[str | None, _option("Write the report as JSON; - is stdout.", _OUTPUT, "FILE")] = None,
    junit: Annotated[Path | None, _option("Write the report as JUnit XML.", _OUTPUT, "FILE")] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="A should that failed counts too.", rich_help_panel=_OUTPUT)
    ] = False,
) -> None:
    """Judge any HTTP service that takes a key, in any language, from outside.

    It sends real requests, about two hundred: never point it at production. What cannot be seen without more options is
    "not seen", never passed. The exit code is 0 only if no must failed.
    """
    given = {
        "url": url, "method": method, "body": body, "content-type": content_type, "header": header, "bare": bare,
        "with": with_, "required": required, "reused-status": reused_status, "running-status": running_status,
        "timeout": timeout, "effects": effects, "effects-pointer": effects_pointer, "other-body": other_body,
        "slow-body": slow_body, "other-caller": other_caller, "other-path": other_path, "copies": copies, "app": app,
        "wsgi": wsgi,
    }  # fmt: skip
    options = {name: value for name, value in given.items() if value not in (None, [])}
    report = _judged(options, target, log, quiet=json == "-")
    _written(report, json, junit, strict=strict)
    if json != "-":
        out = console()
        for part in shown_report(report, strict=strict):
            out.print(part)
    if report.failed(strict=strict):
        raise typer.Exit(OTHER)


def _judged(given: dict[str, Any], file: Path | None, log: Path | None, *, quiet: bool) -> Report:
    with requires("semel conform", "h11"):
        from semel_lab.conform import conform as judge
        from semel_lab.conform import read_settings, served, target_of

    settings = (read_settings(file) if file is not None else {}) | given
    app, wsgi = settings.pop("app", None), settings.pop("wsgi", None)
    if app is not None and wsgi is not None:
        message = "An app is either ASGI or WSGI, so give one of --app and --wsgi; nothing was run."
        raise usage_error(message)
    with ExitStack() as stack:
        if app is not None or wsgi is not None:
            base = stack.enter_context(served("asgi", app, log) if app is not None else served("wsgi", wsgi, log))
            settings["url"] = urljoin(base, str(settings.get("url", "/")))
        checked = target_of(settings)
        return judge(checked, progress=stack.enter_context(_progress(console(), quiet=quiet)))


@contextmanager
def _progress(out: Console, *, quiet: bool) -> Iterator[Callable[[int, int, str], None] | None]:
    """A bar on a terminal, nothing elsewhere: a run takes seconds."""
    if quiet or not out.is_terminal:
        yield None
        return
    columns = (TextColumn("{task.description}"), BarColumn(None), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=out, transient=True) as bar:
        task = bar.add_task("", total=None)
        yield lambda done, total, name: bar.update(task, completed=done, total=total, description=f"{name:<26}")


def _written(report: Report, json: str | None, junit: Path | None, *, strict: bool) -> None:
    from semel_lab.conform import junit as as_junit

    try:
        if json == "-":
            sys.stdout.write(report.as_json().decode())
        elif json is not None:
            Path(json).write_bytes(report.as_json())
        if junit is not None:
            junit.write_bytes(as_junit(report, strict=strict))
    except OSError as error:
        message = f"The report cannot be written to {error.filename}: {error.strerror}. The cases were run."
        raise usage_error(message) from error


def shown_report(report: Report, *, strict: bool = False) -> Iterator[RenderableType]:
    """The report, part by part."""
    yield _table(report)
    for result in report.failed(strict=True):
        yield Padding(_failure(result), (0, 0, 1, 1))
    yield Padding(_conclusion(report, strict=strict), (0, 0, 0, 1))


def _table(report: Report) -> Table:
    table = Table(box=box.SIMPLE_HEAD, header_style="bold", padding=(0, 1, 0, 0))
    table.add_column("case", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    table.add_column("what was seen", ratio=1)
    table.add_column("rule", style="dim")
    for result in report.results:
        table.add_row(result.case.id, Text(*_styled(result)), as_text(result.seen), result.case.rule)
    return table


def _styled(result: Result) -> tuple[str, str]:
    return _SHOULD if result.word == "failed" and result.case.severity == "should" else _STYLES[result.word]


def _failure(result: Result) -> Table:
    case = result.case
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column()
    mark, style = _styled(result)
    grid.add_row(Text(mark[0], style), Text(f"{case.id}: {case.checks}", style))
    for name, text in (
        ("expected", result.expected or ""),
        ("seen", result.seen),
        ("why", case.why),
        ("rule", case.rule),
    ):
        grid.add_row(name, as_text(text))
    return grid


def _conclusion(report: Report, *, strict: bool) -> Text:
    numbers = ", ".join(f"{report.count(word)} {word}" for word in _STYLES)
    text = f"{clean(report.url)}: {numbers}, in {report.seconds:.1f} s."
    if report.failed(strict=strict):
        return Text(f"✘ {text} Something that {'should' if strict else 'must'} hold does not.", "bold red")
    if report.count("failed"):
        return Text(f"✔ {text} Every must that was seen holds; what failed is a should.", "bold green")
    return Text(f"✔ {text} Everything that was seen holds.", "bold green")
