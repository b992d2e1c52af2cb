"""The gates that a change set passes before it is published; the only importer of Great Expectations."""

import os

# Great Expectations reads it as it is imported.
os.environ.setdefault("GX_ANALYTICS_ENABLED", "false")
