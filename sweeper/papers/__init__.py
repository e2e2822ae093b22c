"""What travels with a model so that others can check and file it: hashes, signature, verification, exports."""
