"""The negative class: patches of normal tissue sampled from full mammograms."""
