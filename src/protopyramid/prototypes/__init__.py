"""The prototypes of a trained run: their cases, nearest images, health, and pruning."""
