"""Task sets, their tokens and chunks, and the scoring of answers."""
