"""Data sets: found and fingerprinted, loaded, checked, shared among workers, augmented."""
