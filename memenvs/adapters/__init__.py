"""The environments in other trainers: one file or folder a trainer, imported by its own name."""
