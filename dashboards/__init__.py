"""Figures, reports and exports of sweeps; reads records, trains nothing."""

from dashboards.data import SweepData, read
from dashboards.export.files import export_front
from dashboards.pages.report import build_report
from sweeper.results.exporters import Format

__all__ = ["Format", "SweepData", "build_report", "export_front", "read"]
