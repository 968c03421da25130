"""Pure functions on arrays: AUROC, bootstrap, calibration, confusion, localisation, prototype health."""
