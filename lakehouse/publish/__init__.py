"""Stages, and the writes that publish them once."""
