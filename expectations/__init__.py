"""The gates that a change set passes before it is published. Only this package imports Great Expectations."""

import os

# Great Expectations reads this variable when it is imported.
os.environ.setdefault("GX_ANALYTICS_ENABLED", "false")
