"""Formats: from a store to the model; one module or package per format, and detection."""
