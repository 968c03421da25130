"""Explanation: why the model says what it says, as objects, pictures and pages."""
