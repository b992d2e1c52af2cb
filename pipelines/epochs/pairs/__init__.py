"""Epochs of joins whose rows match in any number, so that pairs of keys identify rows of the result."""
