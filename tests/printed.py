"""What tests tell besides whether they passed: lines that stand at the end of the session, whoever runs it."""

PRINTED = "printed at the end"
"""The property of a test, as `record_property` gives it, whose values are printed."""
