"""The pipeline file: its keys, options and rules. Statements are not parsed here."""
