"""The reader: a web page on which a radiologist opens a film, marks a lesion, sees why, and asks back."""
