"""Showing a result: tables for the terminal, figures for a paper, words for both."""
