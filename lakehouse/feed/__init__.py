"""Ranges of change feeds that can be read, and rows that a feed distorts."""
