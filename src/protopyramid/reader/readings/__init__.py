"""Reader studies: what is read in which order, the answers on disk, and what they add up to."""
