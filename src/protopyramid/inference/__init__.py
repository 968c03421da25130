"""From a trained model and images to evidence: batches, predictions, out-of-distribution."""
