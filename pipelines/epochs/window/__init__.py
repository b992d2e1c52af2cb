"""Epochs of joins of two streams."""
