"""The prototypes of a trained run: their cases, neighbours, health, and pruning."""
