"""``tpk export``: a trained model as a file for other programs."""
