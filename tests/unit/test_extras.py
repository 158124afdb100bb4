"""What a user is told where an optional package is missing: the same sentence for every part, without it."""

import importlib
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from semel.extras import PACKAGES, requires

ROOT = Path(__file__).parents[2]
_CALL = 'assert semel.run("k", lambda: 1, operation="o", fingerprint=None)'

STORES = [
    ('Semel("postgresql://localhost/shop")', "postgresql://", "psycopg", "semel[postgres]"),
    ('AsyncSemel("postgresql://localhost/shop")', "postgresql://", "asyncpg", "semel[postgres]"),
    ('AsyncSemel("postgresql+asyncpg://localhost/shop")', "postgresql://", "asyncpg", "semel[postgres]"),
    ('Semel("postgres://localhost/shop")', "postgresql://", "psycopg", "semel[postgres]"),
    ('Semel("mysql://localhost/shop")', "mysql://", "pymysql", "semel[mysql]"),
    ('Semel("mariadb://localhost/shop")', "mysql://", "pymysql", "semel[mysql]"),
    ('AsyncSemel("mysql://localhost/shop")', "mysql://", "asyncmy", "semel[mysql]"),
    ('Semel("redis://localhost")', "redis://", "redis", "semel[redis]"),
    ('AsyncSemel("rediss://localhost")', "rediss://", "redis", "semel[redis]"),
    ('Semel("redis+cluster://localhost")', "redis+cluster://", "redis", "semel[redis]"),
    ('Semel("redis+sentinel://localhost/main")', "redis+sentinel://", "redis", "semel[redis]"),
    ('Semel("dynamodb://records")', "dynamodb://", "boto3", "semel[dynamodb]"),
    ('AsyncSemel("dynamodb://records")', "dynamodb://", "aiobotocore", "semel[dynamodb]"),
    ('Semel("sqlite:///semel.db", cache="redis://localhost")', "cache=", "redis", "semel[redis]"),
    ('AsyncSemel("memory://", cache="redis://localhost")', "cache=", "redis", "semel[redis]"),
    (f'semel = Semel("django://default"); {_CALL}', "django://", "django", "django"),
]
PARTS = [
    ("import semel.http.fastapi", "semel.http.fastapi", "fastapi", "fastapi"),
    ("import semel.http.fastapi", "semel.http.fastapi", "starlette", "starlette"),
    ("import semel.http.flask", "semel.http.flask", "flask", "flask"),
    ("import semel.http.django", "semel.http.django", "django", "django"),
    ("import semel.http.drf", "semel.http.django", "django", "django"),
    ("from semel.client import Client", "semel.client", "httpx", "semel[client]"),
    ("import semel.client.httpx", "semel.client", "httpx", "semel[client]"),
    ("import semel.testing.contract", "semel.testing.contract", "pytest", "semel[testing]"),
    (
        "from semel.events.brokers.faststream import inbox",
        "semel.events.brokers.faststream",
        "faststream",
        "semel[faststream]",
    ),
    ("import semel.client.requests", "semel.client.requests", "requests", "semel[requests]"),
]
COMMANDS = [
    (["list", "sqlite:///semel.db"], "The command semel", "typer", "semel[cli]"),
    (["list", "sqlite:///semel.db"], "The command semel", "rich", "semel[cli]"),
    (["list", "postgresql://localhost/shop"], "postgresql://", "psycopg", "semel[postgres]"),
    (["doctor", "postgresql://localhost/shop"], "postgresql://", "psycopg", "semel[postgres]"),
    (["migrate", "mysql://localhost/shop"], "mysql://", "pymysql", "semel[mysql]"),
    (["doctor", "dynamodb://records"], "dynamodb://", "boto3", "semel[dynamodb]"),
    (["sweep", "redis://localhost"], "redis://", "redis", "semel[redis]"),
    (["conform", "http://localhost/"], "semel conform", "h11", "semel[cli]"),
]


def _without(module: str, program: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run `program` where `module` is not installed."""
    code = f"import sys; sys.modules[{module!r}] = None; from semel import AsyncSemel, Semel, errors\n{program}"
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=folder, timeout=60, check=False
    )


def _sentence(part: str, module: str, package: str) -> str:
    return f'{part} needs {module}: pip install "{package}". It is not installed here, and nothing ran.'


@pytest.mark.slow
@pytest.mark.parametrize(("program", "part", "module", "package"), [*STORES, *PARTS])
def test_a_missing_package_is_named_with_the_command_that_installs_it(
    program: str, part: str, module: str, package: str, tmp_path: Path
) -> None:
    lines = ["try:", f"    {program}", "except errors.DependencyMissing as error:"]
    lines += ["    assert isinstance(error, ImportError)", "    print(error.package, error.module, error, sep='|')"]
    done = _without(module, "\n".join(lines), tmp_path)
    expected = f"{package}|{module}|{_sentence(part, module, package)}\n"
    assert done.stdout == expected, done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(("arguments", "part", "module", "package"), COMMANDS)
def test_a_command_without_its_package_says_the_same_in_one_line(
    arguments: list[str], part: str, module: str, package: str, tmp_path: Path
) -> None:
    (tmp_path / "semel.db").touch()
    done = _without(module, f"from semel.cli import main; sys.exit(main({arguments!r}))", tmp_path)
    expected = f"semel: dependency_missing: {_sentence(part, module, package)}\n"
    assert (done.returncode, done.stderr) == (2, expected), done.stdout


def test_a_package_that_is_installed_and_cannot_be_loaded_is_told_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "psycopg.py").write_text("raise ImportError('no pq wrapper available.\\nAttempts made: ...')\n")
    program = 'sys.path.insert(0, "")\ntry: Semel("postgresql://h/d").run("k", int, operation="o", fingerprint=None)\n'
    program += "except errors.DependencyMissing as error: print(error)"
    done = _without("asyncpg", program, tmp_path)
    assert 'postgresql:// needs psycopg: pip install "semel[postgres]"' in done.stdout, done.stderr
    assert "no pq wrapper available" in done.stdout


def test_an_import_of_the_application_that_fails_stays_its_own_error() -> None:
    with pytest.raises(ModuleNotFoundError, match="no_such_module"), requires("semel.http.flask", "flask"):
        importlib.import_module("no_such_module")


def test_every_extra_that_is_named_exists_and_brings_the_package() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    normal = {extra: " ".join(given).lower().replace("-", "_") for extra, given in extras.items()}
    # By what the extra names.
    brought = {"botocore": "boto3", "kombu": "celery", "pamqp": "aiormq", "urllib3": "requests"}
    for module, package in PACKAGES.items():
        if package.startswith("semel["):
            extra = package.removeprefix("semel[").rstrip("]")
            assert brought.get(module, module).lower() in normal[extra], f"{package} does not bring {module}"
