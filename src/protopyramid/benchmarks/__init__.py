"""Measured speed: every row is a ratio of two things done in turns in one process."""
