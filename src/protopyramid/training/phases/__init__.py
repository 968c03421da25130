"""The phases of a schedule, one module each: train, project, fit the head."""
