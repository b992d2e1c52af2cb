"""The gates that a change set passes before it is published; the only importer of Great Expectations."""
