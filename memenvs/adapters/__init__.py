"""The environments in other people's trainers: one file or folder a trainer, imported by its own name."""
