"""Studies: many runs that answer one question, made by one command, with seeds and spread."""
