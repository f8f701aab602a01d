"""Reports: MLflow runs become tables, figures and one page. `compile_report` is the way in.

Importing this package imports neither MLflow nor matplotlib; the first call does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from reports.compile import Report, compile_report
    from reports.errors import ReportError

__all__ = ["Report", "ReportError", "compile_report"]


def __getattr__(name: str) -> Any:
    if name == "ReportError":
        from reports.errors import ReportError

        return ReportError
    if name in ("Report", "compile_report"):
        import reports.compile as compiler

        return getattr(compiler, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
