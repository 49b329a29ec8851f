"""The tests, one file per chapter of the contract."""
