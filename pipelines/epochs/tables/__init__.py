"""Epochs of joins of tables."""
