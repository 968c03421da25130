"""Pages and documents about a run: HTML report, model card, gallery, comparison."""
