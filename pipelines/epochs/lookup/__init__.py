"""Epochs of joins of a stream with tables."""
