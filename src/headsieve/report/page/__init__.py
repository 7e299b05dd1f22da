"""The report of a study as one page that needs nothing else: no network, no other file."""

from headsieve.report.page.render import comparison_page, render_page, study_page

__all__ = ["comparison_page", "render_page", "study_page"]
