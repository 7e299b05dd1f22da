"""Models: loading them, finding their heads, knocking heads out."""
