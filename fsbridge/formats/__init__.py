"""Formats: from a store to the model, one package each. Empty on purpose: child processes import from below."""
