"""Formats that Django looks up by language."""
