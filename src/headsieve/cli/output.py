"""What commands print."""

from __future__ import annotations

from typing import Any


def show(renderable: Any) -> None:
    """Print what rich can render, as wide as the terminal or, in a file, as it needs."""
    from rich.console import Console

    console = Console()
    if not console.is_terminal:
        # A pipe has no width of its own, and a file should not be cut at 80 columns.
        console = Console(width=120)
    # Printed as one text: of a closed pipe rich would make an end with status 1.
    with console.capture() as capture:
        console.print(renderable, crop=False)
    print(capture.get(), end="")
