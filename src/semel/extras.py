"""Optional dependencies: what has to be installed for each part of semel, and the error where it is not.

Whatever imports an optional package does so inside `requires`, so that every part of semel says the same sentence.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from semel.errors import DependencyMissing

PACKAGES: Final = {
    "SpiffWorkflow": "semel[spiff]",
    "aio_pika": "faststream[rabbit]",
    "aiobotocore": "semel[dynamodb]",
    "aiokafka": "faststream[kafka]",
    "aiormq": "semel[rabbitmq]",
    "asyncmy": "semel[mysql]",
    "asyncpg": "semel[postgres]",
    "boto3": "semel[dynamodb]",
    "botocore": "semel[dynamodb]",
    "celery": "semel[celery]",
    "django": "django",
    "fastapi": "fastapi",
    "faststream": "semel[faststream]",
    "flask": "flask",
    "h11": "semel[cli]",
    "httpx": "semel[client]",
    "jinja2": "semel[server]",
    "kombu": "semel[celery]",
    "nats": "semel[nats]",
    "opentelemetry": "semel[telemetry]",
    "pamqp": "semel[rabbitmq]",
    "prometheus_client": "semel[telemetry]",
    "psycopg": "semel[postgres]",
    "pymysql": "semel[mysql]",
    "pytest": "semel[testing]",
    "pyzeebe": "semel[zeebe]",
    "redis": "semel[redis]",
    "requests": "semel[requests]",
    "rest_framework": "djangorestframework",
    "rich": "semel[cli]",
    "sqlalchemy": "sqlalchemy",
    "starlette": "starlette",
    "temporalio": "semel[temporal]",
    "typer": "semel[cli]",
    "urllib3": "semel[requests]",
    "uvicorn": "uvicorn",
}
"""What to give to pip, by the name of the module that is missing."""


@contextmanager
def requires(part: str, module: str) -> Iterator[None]:
    """Explain an import of `module`, or of something it needs, that fails inside; `part` of semel needs it.

    Raises:
        DependencyMissing: a package is not installed, or is installed and cannot be loaded.
    """
    try:
        yield
    except DependencyMissing:
        raise
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in PACKAGES:
            raise
        raise missing_error(part, missing) from error
    except ImportError as error:
        if (error.name or "").partition(".")[0] == "semel":
            raise
        raise _unusable_error(part, module, error) from error


def missing_error(part: str, module: str) -> DependencyMissing:
    """The error for a package that is not installed."""
    package = PACKAGES[module]
    message = f'{part} needs {module}: pip install "{package}". It is not installed here, and nothing ran.'
    return DependencyMissing(message, module=module, package=package)


def _unusable_error(part: str, module: str, error: ImportError) -> DependencyMissing:
    package = PACKAGES[module]
    reason = " ".join(str(error).split())[:200]
    message = (
        f'{part} needs {module}: pip install "{package}". What is installed here cannot be loaded ({reason}), and '
        f"nothing ran."
    )
    return DependencyMissing(message, module=module, package=package)
