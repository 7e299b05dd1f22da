"""Sensing: which masks to measure, and what their scores say about heads. Knows no model."""
