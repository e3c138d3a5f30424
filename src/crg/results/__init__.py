"""Results: the ledger of runs, what was measured, and what papers print."""
