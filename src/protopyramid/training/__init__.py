"""Training: the schedule, its steps, and a run that is never lost."""
