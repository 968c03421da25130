"""Explanation: why the model says what it says, as results, JSON and figures."""
