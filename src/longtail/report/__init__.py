"""Reports as self-contained HTML pages: of an evaluation, and of a comparison of models."""

from __future__ import annotations

from longtail.report.evaluation_page import report_on_model, report_on_predictions, write_report
from longtail.report.page import check_report_path
from longtail.report.reliability import calibration_error, reliability_in_words, reliability_rows
from longtail.report.side_by_side import write_side_by_side

__all__ = [
    "calibration_error",
    "check_report_path",
    "reliability_in_words",
    "reliability_rows",
    "report_on_model",
    "report_on_predictions",
    "write_report",
    "write_side_by_side",
]
