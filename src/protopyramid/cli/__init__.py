"""The command line: one module per verb, with heavy imports inside the commands."""
