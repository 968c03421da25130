"""Decoding of image files, DICOM included."""
