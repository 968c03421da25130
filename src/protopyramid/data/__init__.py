"""Datasets: the manifest, images and masks, augmentation, the image store and synthetic phantoms."""
