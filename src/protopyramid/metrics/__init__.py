"""Pure functions on arrays: AUROC, calibration, bootstrap, localisation, prototype health."""
