"""Metrics, traces and log lines, made from the signals of an engine."""

from semel.telemetry.attention import Attention, AttentionCollector

__all__ = ["Attention", "AttentionCollector"]
