"""Models that travel: packing a run into one file, fetching one, putting its pictures back."""
