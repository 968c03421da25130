"""The run folder: its layout, its records, and the trained model that it holds."""
