"""The browser client: its own tests under Node, what its package holds, and that it reads routes as the server does."""

import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from semel.http import Route
from tests.processes import run_bounded
from tests.servers.plugin import verdict

CLIENT = Path(__file__).parents[2] / "clients" / "js"
LONGEST = 100
TESTS = sorted(path.relative_to(CLIENT).as_posix() for path in (CLIENT / "test").glob("*.test.js"))


def _program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise verdict(
            f"NOT TESTED: the browser client, because there is no {name} on the PATH; install Node 18 or newer."
        )
    return found


def _run(program: str, *arguments: str, more: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return run_bounded([_program(program), *arguments], LONGEST, cwd=CLIENT, env={**os.environ, **(more or {})})


@pytest.mark.slow
@pytest.mark.parametrize("file", TESTS)
def test_every_test_of_the_client_passes_under_node(file: str) -> None:
    done = _run("node", "--test", "--test-reporter=tap", file, more={"NODE_OPTIONS": ""})
    failed = [block for block in done.stdout.split("# Subtest: ") if "\nnot ok " in block]
    assert done.returncode == 0, "\n".join(failed)[-5000:] + done.stderr[-2000:]
    assert "# skipped 0" in done.stdout


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What `npm pack` would make; it writes nothing here, and asks no network."""
    _program("npm")
    cache = tmp_path_factory.mktemp("npm")
    more = {"npm_config_cache": str(cache), "npm_config_offline": "true", "npm_config_update_notifier": "false"}
    done = _run("npm", "pack", "--dry-run", "--json", more=more)
    assert done.returncode == 0, done.stderr
    (package,) = json.loads(done.stdout)
    return package


@pytest.mark.slow
def test_the_package_holds_the_sources_and_nothing_else(packed: Any) -> None:
    sources = {f"src/{path.name}" for path in (CLIENT / "src").iterdir()}
    assert {"src/once.js", "src/once.d.ts"} <= sources
    assert {entry["path"] for entry in packed["files"]} == sources | {"package.json", "README.md", "LICENSE"}


@pytest.mark.slow
def test_the_package_has_its_name_and_version(packed: Any) -> None:
    assert (packed["name"], packed["version"]) == ("@semel/once", "0.1.0")


def test_the_package_carries_the_license_of_the_project() -> None:
    assert (CLIENT / "LICENSE").read_bytes() == (CLIENT.parents[1] / "LICENSE").read_bytes()


def test_the_client_reads_routes_as_the_server_does() -> None:
    patterns = ["/orders", "/orders/", "/orders/*/pay", "/api/**", "/**", "/", "/a.b", "/*", "/x*/y"]
    paths = [
        "/",
        "/orders",
        "/orders/",
        "//orders",
        "/orders/1/pay",
        "/orders/1/2/pay",
        "/orders//pay",
        "/api",
        "/api/",
    ]
    paths += ["/api/a/b", "/axb", "/a.b", "/x*/y", "/xz/y", "/orders/1/pay/"]
    program = (
        'import { fits } from "./src/retention.js";'
        "const [patterns, paths] = JSON.parse(process.argv[1]);"
        "console.log(JSON.stringify(patterns.map((pattern) => paths.map((path) => fits(pattern, path)))));"
    )
    done = _run("node", "--input-type=module", "--eval", program, json.dumps([patterns, paths]))
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [[Route(pattern).fits(path) for path in paths] for pattern in patterns]
