"""Figures on a trained model: metrics, localisation, predictions and comparison."""
