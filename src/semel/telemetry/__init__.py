"""Metrics, traces and log lines, made from the signals of an engine."""

from semel.telemetry.attention import Attention, AttentionCollector
from semel.telemetry.several import Observers

__all__ = ["Attention", "AttentionCollector", "Observers"]
