"""Reports for people: tables, plots and pages, made from results only."""
