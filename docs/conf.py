"""Configuration of the documentation site: ``make docs``."""

from __future__ import annotations

from importlib import metadata

project = "headsieve"
release = metadata.version("headsieve")
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_argparse_cli",
]
html_theme = "furo"
html_title = f"headsieve {release}"
html_show_copyright = False
html_show_sourcelink = False
# Pages link to sections of each other as they do on GitHub.
myst_heading_anchors = 3

# Types stand in the signatures and, in words, in the docstrings.
autodoc_typehints = "none"
autodoc_class_signature = "separated"
napoleon_google_docstring = False
napoleon_use_rtype = False
