"""The report of a study as one page that needs nothing else: no network, no other file."""

from headsieve.report.page.render import atlas_page, comparison_page, render_page, study_page

__all__ = ["atlas_page", "comparison_page", "render_page", "study_page"]
