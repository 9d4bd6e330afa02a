"""Episodes played by policies."""
