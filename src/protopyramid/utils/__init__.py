"""What every room needs: atomic writing, locks, journals, tables, processes, progress."""
