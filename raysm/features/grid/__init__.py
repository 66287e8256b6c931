"""Many jobs: the rows of a table as jobs over regions, each done once."""
