"""The data of the package: rules and dashboards."""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]  # its stubs are a package of their own

FOLDER = Path(str(files("semel.telemetry") / "data"))
RULES_FILE = FOLDER / "rules.yml"
RULES: list[dict[str, Any]] = [
    rule for group in yaml.safe_load(RULES_FILE.read_text())["groups"] for rule in group["rules"]
]
ALERTS: dict[str, dict[str, Any]] = {rule["alert"]: rule for rule in RULES if "alert" in rule}
DASHBOARDS: dict[str, dict[str, Any]] = {path.name: json.loads(path.read_text()) for path in FOLDER.glob("*.json")}
