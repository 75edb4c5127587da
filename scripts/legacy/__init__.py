"""`scripts/legacy-check`: other people's programs read every layout of every format, and what they read is compared."""
