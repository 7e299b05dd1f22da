"""Measuring: masks times items to scores."""
